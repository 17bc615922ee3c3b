"""What no program comes to, or no program of today: reasons to say nothing.

`doubts` asks the others: `failures`, `surely_called`, `left_over`, `unused`,
`unimported`, `kept_unread`, `missing_imports`, `doubtful`, `switches`, `excluded`,
`remainders`, `seldom_called`, `once`, `drawn`, `untrained`, `handed_on`, `overridden`,
`refused`, `set_aside`, `shown`, `unchosen`; for `failures`: `evaluated`, `lacking`,
`needed`, `written_out`, `processes`, `loaded_sources`, `loaded_weights`; for
`excluded`: `merged_settings`; `offered`, `commands` and `looked_up`: what a project is
for, how it is started, and what it asks for by names; `started`, `platforms`,
`test_code`: what a program is; which releases can run it: `old_torch`,
`implicit_imports`, `old_packages`, `extensions`.
"""
