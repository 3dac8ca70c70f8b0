"""A node's doors: which requests are served, and which answers are waited for at the end?"""
