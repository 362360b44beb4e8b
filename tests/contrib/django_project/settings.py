"""The settings of a small Django project. The tests name the file of its database, and the managers."""

import os

SECRET_KEY = "for tests"
USE_TZ = True
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = os.environ["SHOP_MAILS"]
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_tasks", "tenure.contrib.django", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["SHOP_DATABASE"],
        # A transaction that reads first and then writes fails at once when somebody wrote in between, and does not wait.
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 60},
    }
}
TASKS = {
    "default": {
        "BACKEND": "tenure.contrib.django.backend.TenureBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            "ADDRESSES": os.environ["SHOP_MANAGERS"],
            "ENGINE": os.environ["SHOP_ENGINE"],
            "MODULES": ["examples.real.signup_mail"],
        },
    },
    "in_transaction": {
        "BACKEND": "tenure.contrib.django.backend.TenureBackend",
        "OPTIONS": {"ADDRESSES": os.environ["SHOP_MANAGERS"], "DATABASE": "default"},
    },
}
