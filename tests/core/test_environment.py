"""Which variables of a worker's environment does a program get, and which may a job set?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.core.environment import (
    CLEAN,
    LOADERS,
    NO_SECRETS,
    SECRETS,
    WHOLE,
    EnvRules,
    check_env,
    check_pattern,
    check_settable,
)
from wakugumi.core.environment import held_back as held
from wakugumi.errors import Refused
from wakugumi.limits.wire import ENV_BYTES_MAX, ENV_VARIABLES_MAX

USUAL = EnvRules()


def words(text: str) -> list[str]:
    return text.split()


SECRET = words("""
    WAKU_TOKEN WAKU_LEADER WAKU_JOB_ID waku_token AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
    AWS_PROFILE AWS_SHARED_CREDENTIALS_FILE AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_WEB_IDENTITY_TOKEN_FILE
    AZURE_CLIENT_SECRET AZURE_CLIENT_ID ARM_ACCESS_KEY AZURE_STORAGE_CONNECTION_STRING
    GOOGLE_APPLICATION_CREDENTIALS GOOGLE_API_KEY CLOUDSDK_AUTH_ACCESS_TOKEN OS_PASSWORD OS_AUTH_URL
    DIGITALOCEAN_ACCESS_TOKEN HCLOUD_TOKEN CLOUDFLARE_API_TOKEN ALICLOUD_SECRET_KEY MINIO_ROOT_PASSWORD
    VAULT_TOKEN VAULT_ADDR CONSUL_TOKEN CONSUL_HTTP_TOKEN CONSUL_HTTP_AUTH NOMAD_TOKEN NOMAD_LICENSE
    CONSUL_LICENSE GITHUB_TOKEN GH_TOKEN GITLAB_PAT GITLAB_TOKEN CI_JOB_TOKEN CI_JOB_JWT NPM_TOKEN PYPI_TOKEN
    TWINE_PASSWORD HF_TOKEN API_TOKENS OPENAI_API_KEY ANTHROPIC_API_KEY WANDB_API_KEY APIKEY MY_APIKEY
    SLACK_WEBHOOK_URL TOKEN SECRET PASSWORD PASS PGPASSWORD PGPASSFILE PGSERVICEFILE MYSQL_PWD REDIS_PASSWORD
    DB_PASS DB_PASS_PROD LDAP_BIND_PW MONGO_URI MONGODB_URI DATABASE_URL TEST_DATABASE_URL REDIS_URL
    REDIS_TLS_URL AMQP_URL CELERY_BROKER_URL SENTRY_DSN DSN PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_INDEX_PRIVATE
    UV_EXTRA_INDEX_URL POETRY_HTTP_BASIC_X_PASSWORD CARGO_REGISTRY_TOKEN SSH_AUTH_SOCK SSH_AGENT_PID SSH_ASKPASS
    GIT_ASKPASS SUDO_ASKPASS GPG_AGENT_INFO GPG_PASSPHRASE BORG_PASSPHRASE RESTIC_PASSWORD RESTIC_PASSWORD_FILE
    KRB5CCNAME KUBECONFIG NETRC DOCKER_AUTH_CONFIG DOCKER_HOST DOCKER_CONFIG XAUTHORITY DBUS_SESSION_BUS_ADDRESS
    NOTIFY_SOCKET CREDENTIALS_DIRECTORY BW_SESSION OP_SESSION_MY RCLONE_CONFIG_S3_TYPE PRIVATE_KEY
    TLS_PRIVATE_KEY_FILE SIGNING_KEY JWT_SECRET SECRET_KEY_BASE DJANGO_SECRET_KEY FLASK_SECRET ENCRYPTION_KEYS
    SESSION_COOKIE RAILS_MASTER_KEY API_KEY_2 api_key my_password SSL_KEY_PEM HTPASSWD_FILE SAS_TOKEN
    BLOB_SAS_URL SSHPASS DBPASS MY_DBPASS MYSQLPASS FTPPASS ROOTPASS DB_PSWD DB_CREDS GOOGLE_CREDS CREDS
    ACCESSKEY MINIO_ACCESSKEY TS_AUTHKEY DATABASE_URI SQLALCHEMY_DATABASE_URI DB_URL DB_URI POSTGRES_URL
    POSTGRESQL_URI MYSQL_URL RABBITMQ_URL CLOUDAMQP_URL SMTP_URL MY_REDIS_URL SPRING_JDBC_URL
    CELERY_RESULT_BACKEND RESTIC_REPOSITORY BORG_PASSCOMMAND GIT_CONFIG_VALUE_0 GIT_CONFIG_KEY_0
    GIT_CONFIG_COUNT AWS_REGION_TOKEN aws_secret_region
""")
"""Programs do not get these. A name that was forgotten is added here, and the list of patterns mended."""

HARMLESS = words("""
    PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE TZ TMPDIR PWD OLDPWD TERM HOSTNAME EDITOR MAIL DISPLAY
    KEYBOARD KEYMAP MONKEY TURKEY HOTKEY KEY XKB_DEFAULT_LAYOUT COMPASS BYPASS PASSAGE PASSENGER_COUNT TRESPASS
    TOKENIZERS_PARALLELISM AUTHOR GIT_AUTHOR_NAME AUTHORITY GPU_PATTERN PATCH XPATH COOKIECUTTER SSH_CONNECTION
    SSH_CLIENT SSH_TTY HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy SSL_CERT_FILE SSL_CERT_DIR LD_LIBRARY_PATH
    PYTHONPATH PYTHONUNBUFFERED VIRTUAL_ENV CONDA_PREFIX JAVA_HOME CLASSPATH R_LIBS MODULEPATH OMP_NUM_THREADS
    MKL_NUM_THREADS CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES SLURM_JOB_ID PBS_JOBID LM_LICENSE_FILE
    MLM_LICENSE_FILE INTEL_LICENSE_FILE ANSYSLMD_LICENSE_FILE MATLABPATH KUBERNETES_SERVICE_HOST PGHOST PGUSER
    AWS_REGION AWS_DEFAULT_REGION AWS_CA_BUNDLE AZURE_REGION aws_region BANDPASS LOWPASS GIT_CONFIG_GLOBAL
    SACREDNESS BASE_URL SERVICE_URL API_URL PGDATABASE MYSQL_HOST INVOCATION_ID JOURNAL_STREAM XDG_RUNTIME_DIR
    ORACLE_HOME CC CFLAGS
""")
"""Programs get these."""


@pytest.mark.spec("O1")
@pytest.mark.parametrize("name", SECRET)
def test_a_secret_is_held_back(name: str) -> None:
    assert held([name, "PATH"], USUAL) == [name]


@pytest.mark.spec("O1")
@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_is_passed_on(name: str) -> None:
    assert held([name], USUAL) == []


@pytest.mark.spec("O1")
def test_clean_passes_a_short_list_and_what_is_named() -> None:
    names = ["PATH", "HOME", "LANG", "LC_TIME", "TZ", "TMPDIR", "USER", "OMP_NUM_THREADS", "MY_TOKEN", "OMP"]
    assert held(names, EnvRules(clean=True)) == ["MY_TOKEN", "OMP", "OMP_NUM_THREADS", "USER"]
    assert held(names, EnvRules(clean=True, pass_on=("OMP_*", "my_token"))) == ["OMP", "USER"]
    assert {"PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR"} == set(CLEAN)


@pytest.mark.spec("O1")
def test_what_is_named_is_passed_and_what_is_to_be_held_is_held_whoever_else_names_it() -> None:
    names = ["AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "SITE", "SITE_2"]
    assert held(names, EnvRules(pass_on=("AWS_PROFILE",))) == ["AWS_SECRET_ACCESS_KEY"]
    assert held(names, EnvRules(hold=("SITE?2",))) == ["AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "SITE_2"]
    assert held(["AWS_REGION"], EnvRules(hold=("AWS_*",))) == held(["AWS_REGION"], EnvRules(clean=True)) != []
    assert held(names, EnvRules(hold=("AWS_SECRET*", "SITE"), pass_on=("*",))) == ["AWS_SECRET_ACCESS_KEY", "SITE"]
    assert held(["PATH", "TZ"], EnvRules(hold=("PATH",), clean=True)) == ["PATH"]


@pytest.mark.spec("O1")
def test_an_embedded_grid_holds_nothing_back() -> None:
    assert held([*SECRET, *HARMLESS], WHOLE) == []


@given(st.lists(st.text(max_size=30)))
def test_any_name_is_held_or_passed(names: list[str]) -> None:
    assert set(held(names, USUAL)) <= set(names)
    assert set(held(names, USUAL)) <= set(held(names, EnvRules(clean=True)))


@pytest.mark.parametrize("pattern", [*SECRETS, *NO_SECRETS, *CLEAN, *LOADERS])
def test_our_own_patterns_are_patterns(pattern: str) -> None:
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", ["", "A B", "A=B", "[A]", "A,B", "Ä"])
def test_what_no_name_can_match_is_no_pattern(pattern: str) -> None:
    with pytest.raises(Refused):
        check_pattern(pattern)


# What a job may set.


@pytest.mark.spec("U8")
@pytest.mark.parametrize("env", [{}, {"A": ""}, {"_a1": "=\n\x1b ü"}, {"OMP_NUM_THREADS": "4", "PATH": "/bin"}])
def test_a_variable_has_a_plain_name_and_any_text(env: dict[str, str]) -> None:
    check_env(env)


@pytest.mark.spec("U8")
@pytest.mark.parametrize(
    "env",
    [
        *[{name: "x"} for name in ("", "1A", "A B", "A=B", "A-B", "Ä", "A\n", "A\0", "WAKU_JOB_ID", "waku_x")],
        *[{"A": value} for value in ("\0", "x\0y", "\ud800", 1, None, b"x")],
        {"A": "x" * ENV_BYTES_MAX},
        {f"A{number}": "" for number in range(ENV_VARIABLES_MAX + 1)},
    ],
)
def test_what_no_program_can_get_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(Refused) as caught:
        check_env(env)
    assert caught.value.code == "bad-request"


@pytest.mark.spec("U8")
def test_as_much_as_is_allowed_is_allowed() -> None:
    check_env({"A": "x" * (ENV_BYTES_MAX - 1)})
    check_env({f"A{number}": "" for number in range(ENV_VARIABLES_MAX)})


RUNS_OTHER_CODE = words("""
    LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH ld_preload DYLD_INSERT_LIBRARIES GCONV_PATH GLIBC_TUNABLES PATH HOME IFS
    ENV BASH_ENV BASH_FUNC_ls PS4 SHELLOPTS PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONUSERBASE PYTHONWARNINGS
    PERL5LIB PERL5OPT RUBYOPT RUBYLIB NODE_OPTIONS NODE_PATH JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS
    CLASSPATH DOTNET_STARTUP_HOOKS CORECLR_PROFILER R_PROFILE_USER R_LIBS_USER JULIA_LOAD_PATH JULIA_DEPOT_PATH
    LUA_PATH LUA_INIT_5_4 GIT_SSH_COMMAND EDITOR GIT_PAGER LESSOPEN OPENSSL_CONF
    OMPI_MCA_mca_base_component_path CUDA_INJECTION64_PATH XDG_CONFIG_HOME OMPI_MCA_btl OMPI_MCA_plm_rsh_agent
    OMP_TOOL_LIBRARIES TAR_OPTIONS MAKEFLAGS GNUMAKEFLAGS HDF5_PLUGIN_PATH GDAL_DRIVER_PATH AWKLIBPATH AWKPATH
    ERL_AFLAGS ERL_FLAGS ERL_ZFLAGS RSYNC_RSH CVS_RSH VK_LAYER_PATH VK_ICD_FILENAMES MAVEN_OPTS GRADLE_OPTS
    JAVA_OPTS MY_JAVA_OPTS QT_PLUGIN_PATH QT_QPA_PLATFORM_PLUGIN_PATH GST_PLUGIN_PATH TCLLIBPATH LIBPATH
    I_MPI_HYDRA_BOOTSTRAP_EXEC SSH_ASKPASS LIBGL_DRIVERS_PATH MAGICK_CODER_MODULE_PATH SHELL
""")
RUNS_NO_OTHER_CODE = words("""
    OMP_NUM_THREADS MALLOC_ARENA_MAX LANG TZ TMPDIR SEED MY_TOKEN CUDA_VISIBLE_DEVICES JULIA_NUM_THREADS
    PYTHONUNBUFFERED PYTHONHASHSEED OMP_PROC_BIND OMP_SCHEDULE DATA_PATH OUT_DIR SOLVER_OPTS
    XDG_CACHE_HOME MPLCONFIGDIR NO_COLOR HTTP_PROXY AWS_PROFILE
    MYPATH ENVIRONMENT
""")


@pytest.mark.spec("U8", "W1")
@pytest.mark.parametrize("name", RUNS_OTHER_CODE)
def test_a_job_does_not_set_what_makes_a_program_run_other_code(name: str) -> None:
    with pytest.raises(Refused) as caught:
        check_settable(["SEED", name], USUAL)
    assert caught.value.code == "env-refused"
    assert name in caught.value.message
    assert "SEED" not in caught.value.message
    check_settable([name], WHOLE)
    check_settable([name], EnvRules(settable=("*",)))


@pytest.mark.spec("U8")
@pytest.mark.parametrize("name", RUNS_NO_OTHER_CODE)
def test_a_job_sets_all_else(name: str) -> None:
    check_settable([name], USUAL)


@pytest.mark.spec("U8")
def test_a_worker_that_names_what_may_be_set_allows_nothing_else() -> None:
    rules = EnvRules(settable=("SEED", "OMP_*"))
    check_settable(["SEED", "OMP_NUM_THREADS"], rules)
    for name in ("SEEDS", "TZ", "PATH"):
        with pytest.raises(Refused):
            check_settable([name], rules)
    with pytest.raises(Refused):
        check_settable(["SEED"], EnvRules(settable=()))
