"""Which variables of a worker's environment does a program get, and which may a job set? (SPEC O1, U8)

    the worker's own    all but those whose names say that they hold a secret (`SECRETS`, without `NO_SECRETS`);
                        with `clean`, just `CLEAN`
    `--pass-env`        further ones, also of the two lists
    `--hold-env`        never these, whoever names them else
    the job's own       all but those that make a program run other code (`LOADERS`), or with `--job-env` just those

Patterns have `*` for any characters and `?` for one; upper and lower case are the same. Only names decide: a secret
under a harmless name is passed on, so `clean` is for those who want to be sure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from wakugumi.errors import Refused, bad_request
from wakugumi.limits.wire import ENV_BYTES_MAX, ENV_VARIABLES_MAX

OWN: Final = "WAKU_"
"""Prefix of our own variables: settings, and the job that a process belongs to."""

SECRETS: Final = (
    *(f"{OWN}*", "AWS_*", "AZURE_*", "DOCKER_*", "VAULT_*", "RCLONE_CONFIG_*"),
    # Words for secrets, as names end in them or have them between underscores.
    *("*TOKEN", "*TOKEN_*", "*_TOKENS", "*SECRET*", "*CREDENTIAL*", "*PRIVATE*KEY*", "*APIKEY*", "*API_KEY*"),
    *("CREDS", "*_CREDS", "*_CREDS_*", "*_CRED", "*ACCESSKEY*", "*AUTHKEY*", "*MASTERKEY*", "*SSHKEY*"),
    *(
        "*_KEY",
        "*_KEYS",
        "*_KEY_*",
        "*PASSWORD*",
        "*PASSWD*",
        "*PASSWRD*",
        "*PSWD*",
        "*PASSPHRASE*",
        "*PASSCODE*",
        "*PASSCOMMAND*",
        "PASS",
        "*_PASS",
        "*_PASS_*",
        "*_PWD",
        "*_PW",
    ),
    *("*_AUTH", "*_AUTH_*", "*_PAT", "*_JWT", "*_COOKIE*", "*_BEARER", "*_PEM", "*ASKPASS*"),
    # `*PASS` would hold back COMPASS and BYPASS as well.
    *(
        f"*{whose}PASS"
        for whose in ("DB", "SQL", "SSH", "FTP", "SMTP", "MAIL", "LDAP", "PROXY", "USER", "ROOT", "ADMIN")
    ),
    *("*KEYPASS", "*STOREPASS"),
    # Addresses that usually have a password in them.
    *("*DATABASE_UR?", "DB_UR?", "*_DB_UR?", "*DSN", "*REDIS*_UR?", "*MONGO*_UR?", "*AMQP*_UR?", "*RABBITMQ*_UR?"),
    *("*POSTGRES*_UR?", "PG_UR?", "*SQL*_UR?", "*MARIADB*_UR?", "*ELASTIC*_UR?", "*CLICKHOUSE*_UR?", "*JDBC_*UR?"),
    *("*SMTP*_UR?", "*MAILER_UR?", "*EMAIL_UR?", "*BROKER_UR?", "*RESULT_BACKEND*", "RESTIC_REPO*", "*CACHE_UR?"),
    *("*CONNECTION_STRING*", "*_WEBHOOK*", "*_SAS_URL", "PIP_*INDEX_URL", "UV_*INDEX*"),
    # Settings of git, with headers and addresses in them; without its values the count would be an error.
    *("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_VALUE_*", "GIT_CONFIG_PARAMETERS"),
    # Files and sockets that give the rights of the user.
    *("SSH_AGENT_PID", "GPG_AGENT_INFO", "KRB5CCNAME", "KUBECONFIG", "NETRC", "PGPASS*", "PGSERVICEFILE", "XAUTHORITY"),
    *("DBUS_SESSION_BUS_ADDRESS", "NOTIFY_SOCKET", "BW_SESSION", "OP_SESSION_*", "NOMAD_LICENSE", "CONSUL_LICENSE"),
)
"""Variables that programs do not get by default."""

NO_SECRETS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE", "AZURE_REGION")
"""Exceptions to SECRETS, which programs do get."""

CLEAN: Final = ("PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR")
"""Variables that programs get with `clean`; no others."""

LOADERS: Final = (
    *("LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH"),
    *("PATH", "HOME", "IFS", "ENV", "BASH_*", "BASHOPTS", "SHELLOPTS", "PS4", "CDPATH", "ZDOTDIR", "PROMPT_COMMAND"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONINSPECT", "PYTHONBREAKPOINT"),
    *("PYTHONEXECUTABLE", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONWARNINGS"),
    *("PERL*", "RUBYLIB", "RUBYOPT", "GEM_*", "BUNDLE_*", "NODE_OPTIONS", "NODE_PATH", "NPM_CONFIG_*", "LUA_*PATH*"),
    *("LUA_INIT*", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_HOME"),
    *("DOTNET_STARTUP_HOOKS", "DOTNET_ADDITIONAL_DEPS", "CORECLR_*", "COR_*", "PHPRC", "PHP_INI_SCAN_DIR"),
    *("R_HOME", "R_LIBS*", "R_PROFILE*", "R_ENVIRON*", "OCTAVE_*", "JULIA_*PATH", "JULIA_PROJECT", "JULIA_BINDIR"),
    *("TCLLIBPATH", "GUILE_LOAD_*", "GIT_*", "EDITOR", "VISUAL", "*PAGER", "LESSOPEN", "LESSCLOSE", "BROWSER"),
    *("XDG_CONFIG_*", "XDG_DATA_*", "OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "GTK_MODULES", "GTK_PATH"),
    *("OMPI_MCA_*", "PMIX_MCA_*", "PRTE_MCA_*", "OPAL_*", "I_MPI_*", "HYDRA_*", "OMP_TOOL*", "CUDA_INJECTION*"),
    *("OCL_ICD_*", "OPENCL_VENDOR_PATH", "VK_*", "__EGL_VENDOR_*", "NVCC_*_FLAGS", "MAGICK_*", "GIO_*", "GST_*"),
    *("GDK_PIXBUF_MODULE*", "GI_TYPELIB_PATH", "KRB5_CONFIG", "SASL_PATH", "PKCS11_*", "HDF5_*", "GDAL_*PATH"),
    *("GDAL_*PYTHON*", "OGR_*PATH", "ITK_AUTOLOAD_PATH", "MATLABPATH", "R_DEFAULT_PACKAGES", "ERL_*FLAGS", "ERL_LIBS"),
    *("ELIXIR_ERL_OPTIONS", "AWKPATH", "FPATH", "SHELL", "PARALLEL*", "*_RSH", "RSYNC_*", "*ASKPASS*", "TAR_OPTIONS"),
    *(
        "*MAKEFLAGS",
        "MFLAGS",
        "MAKEFILES",
        "GCC_EXEC_PREFIX",
        "COMPILER_PATH",
        "RUSTC*",
        "CARGO_*",
        "GOFLAGS",
        "GOROOT",
    ),
    *("MAVEN_*", "GRADLE_*", "ANT_*", "SBT_OPTS", "JVM_OPTS", "CATALINA_OPTS", "HADOOP_*OPTS", "SPARK_*OPTS"),
    *("*JAVA_OPTS", "*JAVA_OPTIONS", "DOTNET_ROOT*", "COMPLUS_*"),
    # Common names for the place of a program's plug-ins.
    *("*PLUGIN*PATH*", "*PLUGIN*DIR*", "*MODULE_PATH*", "*DRIVER*_PATH", "*LAYER_PATH", "*LIBPATH", "*LIBRARY_PATH"),
)
"""Variables that jobs may not set by default: with them a loader, a shell or an interpreter runs code of the job's
choice, and "may run calc" becomes "may run anything"."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class EnvRules(msgspec.Struct, frozen=True):
    """The rules of one worker."""

    hold: tuple[str, ...] = ()
    """Patterns of further variables that programs do not get."""
    pass_on: tuple[str, ...] = ()
    """Patterns of variables that programs get in spite of SECRETS and `clean`."""
    clean: bool = False
    whole: bool = False
    """Programs get all variables, and jobs may set any: the programs are the user's own."""
    settable: tuple[str, ...] | None = None
    """Patterns of variables that jobs may set; None: all but LOADERS."""


WHOLE: Final = EnvRules(whole=True)
"""For a grid embedded in its user's own program."""


def held_back(names: Iterable[str], rules: EnvRules) -> list[str]:
    """The worker's variables that its programs do not get, sorted."""
    if rules.whole:
        return []
    held, passed = _matcher(rules.hold), _matcher(rules.pass_on)
    usual, harmless, clean = _matcher(SECRETS), _matcher(NO_SECRETS), _matcher(CLEAN)

    def is_held(name: str) -> bool:
        if held(name):
            return True
        return not passed(name) and ((usual(name) and not harmless(name)) or (rules.clean and not clean(name)))

    return sorted(name for name in names if is_held(name))


def is_passed_by_name(name: str, rules: EnvRules) -> bool:
    """Does `--pass-env` name this variable?"""
    return _matcher(rules.pass_on)(name)


def check_env(env: Mapping[Any, Any]) -> None:
    """Refuses variables that no job can set on any worker. Raises Refused."""
    if len(env) > ENV_VARIABLES_MAX:
        raise bad_request(f"a job sets at most {ENV_VARIABLES_MAX} variables, not {len(env)}")
    size = 0
    for name, value in env.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise bad_request(
                f"a variable's name has letters, digits and _, and begins with no digit: not {name!r}"[:300]
            )
        if name.upper().startswith(OWN):
            raise bad_request(f"{name[:80]!r} cannot be set: names that begin with {OWN} are Wakugumi's own")
        if not isinstance(value, str) or "\0" in value:
            raise bad_request(f"the value of {name[:80]!r} is no text that a program can get")
        try:
            size += len(name) + len(value.encode())
        except UnicodeEncodeError:
            raise bad_request(f"the value of {name[:80]!r} is not Unicode text") from None
    if size > ENV_BYTES_MAX:
        raise bad_request(f"a job's variables take {size} bytes, and {ENV_BYTES_MAX} at most are passed")


def check_settable(names: Iterable[str], rules: EnvRules) -> None:
    """May a job set these on a worker with such rules? Raises Refused."""
    if rules.whole:
        return
    if rules.settable is not None:
        may = _matcher(rules.settable)
        refused = sorted(name for name in names if not may(name))
    else:
        loads = _matcher(LOADERS)
        refused = sorted(name for name in names if loads(name))
    if refused:
        raise Refused("env-refused", f"jobs may not set {', '.join(refused)[:300]} on this worker")


def check_pattern(pattern: str) -> str:
    """The pattern itself, if names can match it. Raises Refused."""
    if not re.fullmatch(r"[A-Za-z0-9_*?]+", pattern):
        raise bad_request(f"{pattern[:80]!r} is no pattern of a variable's name: letters, digits, _ , * and ?")
    return pattern


class _Matcher:
    def __init__(self, patterns: tuple[str, ...]) -> None:
        parts = [re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".") for pattern in patterns]
        self._match = re.compile("|".join(parts), re.IGNORECASE | re.DOTALL).fullmatch if parts else None

    def __call__(self, name: str) -> bool:
        return self._match is not None and self._match(name) is not None


_matcher: Final = lru_cache(64)(_Matcher)
