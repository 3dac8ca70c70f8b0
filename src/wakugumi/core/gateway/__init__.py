"""Which group gets a job that came to the gateway. `roles/gateway` asks; nothing here remembers a job."""
