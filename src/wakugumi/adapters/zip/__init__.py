"""ZIP archives: written, read, extracted, and joined with stdout and stderr. Hostile entries are left out."""
