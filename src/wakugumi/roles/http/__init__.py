"""Shared by all HTTP roles: job requests, ZIP responses, status pages, the OpenAPI documents."""
