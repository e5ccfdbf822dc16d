"""The settings of the project: the usual ones of the admin, and those of Onceward."""

import os

DEBUG = True
SECRET_KEY = "only for this example"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "urls"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "onceward.integrations.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}

# The jobs. `runserver` is one process, so it can run the handlers on a SQLite file.
ONCEWARD = {"DATABASE": os.environ.get("ONCEWARD_DATABASE", "sqlite:///jobs.db"), "WORK": True}
# From Django 6 on: functions of `django.tasks` run as jobs.
TASKS = {
    "default": {
        "BACKEND": "onceward.integrations.django.tasks.OncewardBackend",
        "QUEUES": ["default", "reports"],
        "OPTIONS": {"attempts_max": 2, "retry_first_s": 0.05},
    }
}
