"""What no program comes to, or no program of today: reasons to say nothing.

`doubts` asks the others: `failures`, `surely_called`, `left_over`, `unused`,
`missing_imports`, `doubtful`, `switches`, `seldom_called`, `once`, `drawn`; `offered`
and `commands`: what a project is for, and how it is started; `started`, `platforms`,
`test_code`: what a program is; which releases can run it: `old_torch`,
`implicit_imports`, `old_packages`, `extensions`.
"""
