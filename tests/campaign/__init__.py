"""The reliability campaign: bad inputs, kills, two writers, full disks and damaged files, in large numbers.

`python -m campaign` runs it (`make campaign`); its promises and figures are in docs/reliability.md.
"""
