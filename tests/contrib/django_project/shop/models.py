from django.db import models


class Customer(models.Model):
    name = models.CharField(max_length=50)
    job_id = models.CharField(max_length=200, default="")

    class Meta:
        app_label = "shop"
