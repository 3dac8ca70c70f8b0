"""What a person sees: tables, progress, transfers, `top`."""
