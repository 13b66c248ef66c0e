"""Freshet from Python: submit and watch jobs, and serve rewards and environments of your own.

    import freshet

    job = freshet.Client("localhost:7070").submit("job.yaml")
    job.wait(on_step=print)
"""

from freshet.client import Client
from freshet.environments import EnvironmentFull, EnvironmentServer, NewContext, serve_env
from freshet.errors import (
    ConnectionLost,
    FreshetError,
    InvalidJob,
    JobCancelled,
    JobFailed,
    NotFound,
    Refused,
    TimedOut,
)
from freshet.events import Event, LogLine
from freshet.gymnasium_environment import gymnasium_environment
from freshet.job_handle import Job
from freshet.mcp_environment import mcp_environment
from freshet.openenv_environment import openenv_environment
from freshet.reward_processes import RewardProcesses
from freshet.rewards import RewardServer, serve_reward
from freshet.teams import Team, TeamServer, serve_team

__all__ = [
    "Client",
    "ConnectionLost",
    "EnvironmentFull",
    "EnvironmentServer",
    "Event",
    "FreshetError",
    "InvalidJob",
    "Job",
    "JobCancelled",
    "JobFailed",
    "LogLine",
    "NewContext",
    "NotFound",
    "Refused",
    "RewardProcesses",
    "RewardServer",
    "Team",
    "TeamServer",
    "TimedOut",
    "gymnasium_environment",
    "mcp_environment",
    "openenv_environment",
    "serve_env",
    "serve_reward",
    "serve_team",
]
__version__ = "0.1.0"
