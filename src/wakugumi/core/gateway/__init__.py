"""Which group gets a job of the gateway? `roles/gateway` asks; this package remembers no job."""
