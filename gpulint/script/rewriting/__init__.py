"""How rules change code: edits on nodes, and what makes text of them.

`edits` and `syntax` are for rules; `compiler` and `tree` turn edits into text, `beside`
puts a new object beside the optimizer.
"""
