"""Sends notifications about jobs: follows journals, and delivers messages to the channels that the rules
select.
"""
