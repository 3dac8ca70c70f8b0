"""How do blobs move: how often is a transfer tried, after which pauses, and when is it given up?

`transfers` has the parts that all kinds share: one transfer for all that wait for the same blob at the same place,
tries, pauses, and turns. Each kind is a machine of its own with the four doors of `core/step.py`.
"""
