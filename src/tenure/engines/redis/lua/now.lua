-- uses: seen time
return {0, now}
