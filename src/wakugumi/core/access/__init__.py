"""Access: which identity does a peer have, and what may it do?

`identity` has roles and rules, `rule_lists` compares text with the lists of a rule, `decide` refuses, `local_rule`
knows users of this machine. `key_ring` is the machine of keys and of the connections that use them.

    identity   a proven name with a role and rules
    right      a kind of act, which a role has or lacks
    sight      the client ids whose jobs an identity may see, and those whose jobs it may change
"""
