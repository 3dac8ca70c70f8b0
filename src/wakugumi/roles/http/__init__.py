"""What all HTTP roles share: job requests, ZIP responses, status pages, the OpenAPI documents."""
