"""The command `certify`: run, list, replay, explain, show."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from attnspec.certify.errors import CertifyError, ExitCode, UsageError, worst_exit

if TYPE_CHECKING:
    from rich.console import Console

    from attnspec.certify.campaign.identify import Ready

F = TypeVar("F", bound=Callable[..., Any])
EXIT_CODES = (
    "Exit codes: 0 certified, 1 refuted, 2 usage or configuration, 3 self-check failed or a fault of ours, "
    "4 incomplete (no such device, out of time), 5 nothing selected."
)


def _clear(command: F) -> F:
    """End a command's own errors with their one line and exit code; ATTNSPEC_DEBUG=1 adds the traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        from attnspec.certify.evidence.environment import debugging

        try:
            code = command(*args, **kwargs)
        except CertifyError as error:
            if debugging():
                traceback.print_exc()
            click.echo(f"certify: {error}", err=True)
            code = error.exit_code
        except KeyboardInterrupt:
            click.echo("certify: interrupted", err=True)
            code = ExitCode.INTERRUPTED
        except (click.exceptions.Exit, click.ClickException, SystemExit, BrokenPipeError):
            raise
        except Exception as error:
            if debugging():
                traceback.print_exc()
            click.echo(
                f"certify: a fault of this package: {type(error).__name__}: {error} (ATTNSPEC_DEBUG=1 shows where)",
                err=True,
            )
            code = ExitCode.OWN_FAULT
        sys.exit(int(code))

    return wrapped  # type: ignore[return-value]


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from attnspec.certify.evidence.environment import version

        click.echo(f"certify {version()}")
        context.exit()


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def main() -> None:
    """Certify attention kernels against a proved specification, within derived error bounds."""
    # A console script does not see the working directory, where the user's own kernels are. Last, so that no file
    # there shadows a library.
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


@main.command(epilog=EXIT_CODES)
@click.argument("subjects", metavar="SUBJECT...", nargs=-1, required=True)
@click.option("--device", default="cpu", show_default=True, help="Device to run on: cpu, cuda, cuda:1, ...")
@click.option("--dtype", "dtypes", multiple=True, help="Storage dtype; repeatable. Default: float32 and bfloat16.")
@click.option("--profile", default="pr", show_default=True, help="How much to try: smoke, pr or release.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the inputs.")
@click.option("--examples", type=int, help="Cases for each property and dtype, instead of the profile's number.")
@click.option("--only", multiple=True, metavar="PROPERTY", help="Only this property, or glob pattern; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), help="Evidence folder. Default: cert/SUBJECT.")
@click.option("--ledger", metavar="NAME|FILE", help="Hold the subject to this ledger instead of its own.")
@click.option("--known-divergences", type=click.Path(path_type=Path), help="TOML file of accepted refutations.")
@click.option("--isolate/--no-isolate", default=None, help="Run in a child process. Default: for foreign subjects.")
@click.option("--time-limit", type=float, metavar="SECONDS", help="Stop after this long: INCOMPLETE, exit 4.")
@click.option("--call-timeout", type=float, default=60.0, show_default=True, help="Seconds an isolated call may take.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines instead of text.")
@click.option("--quiet", is_flag=True, help="Print refutations and the verdict only.")
@_clear
def run(subjects: tuple[str, ...], out: Path | None, as_json: bool, quiet: bool, **options: Any) -> ExitCode:
    """Certify one or more subjects.

    SUBJECT is a registered name (see `certify list`), module:attr, or path.py:attr.
    """
    from attnspec.certify.campaign.identify import Request, prepare, slug
    from attnspec.certify.campaign.parts import default_parts

    isolate = options.pop("isolate")
    requests = [
        Request(subject=name, out=_folder(out, slug(name), len(subjects)), isolate=isolate, **options)
        for name in dict.fromkeys(subjects)
    ]
    parts = default_parts()
    # Every request is understood before the first one runs: a typing error in the last costs no time.
    ready = [prepare(request, parts) for request in requests]
    return _run(ready, as_json, quiet)


def _run(ready: list[Ready], as_json: bool, quiet: bool) -> ExitCode:
    from attnspec.certify.campaign.parts import default_parts
    from attnspec.certify.campaign.phases import run_campaign
    from attnspec.certify.evidence.events import Handler, broadcast
    from attnspec.certify.evidence.report.files import Evidence, JsonLines
    from attnspec.certify.evidence.report.terminal import Terminal

    parts = default_parts()
    proofs = parts.proofs()
    checked = None
    codes = []
    for one in ready:
        evidence = Evidence(one.request.out)
        screen: Handler = JsonLines(sys.stdout) if as_json else Terminal(_console(), quiet=quiet)
        try:
            # Files are written before the last line is printed.
            certificate = run_campaign(one, broadcast(evidence, screen), parts, checked=checked, proofs=proofs)
        finally:
            evidence.close()
            if isinstance(screen, Terminal):
                screen.stop()
        checked = certificate.self_check or checked
        codes.append(certificate.exit_code)
        if certificate.exit_code == ExitCode.INTERRUPTED:
            break
    return worst_exit(codes)


def _folder(out: Path | None, name: str, subjects: int) -> Path:
    if out is None:
        return Path("cert") / name
    return out if subjects == 1 else out / name


def _console() -> Console:
    from rich.console import Console

    # A pipe has no width of its own: what reads it should get whole lines.
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200)


@main.command("list")
@click.argument("what", type=click.Choice(["subjects", "properties"]), required=False)
@_clear
def list_(what: str | None) -> ExitCode:
    """List the subjects or the properties known here (default: both)."""
    if what in (None, "subjects"):
        from attnspec.certify.subjects import subject_names

        for name in subject_names():
            click.echo(name)
    if what is None:
        click.echo()
    if what in (None, "properties"):
        from attnspec.certify.trials import registered

        known = registered()
        width = max(map(len, known), default=0)
        for prop in known.values():
            click.echo(f"{prop.id:<{width}}  {prop.claim}  [{prop.theorem or 'tested only'}]")
    return ExitCode.CERTIFIED


@main.command()
@click.argument("name", metavar="ID|FILE")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to look for the id in. Default: cert.")
@_clear
def replay(name: str, out: Path | None) -> ExitCode:
    """Run a stored counter-example again: exit 1 if it still refutes, 0 if it holds now."""
    from attnspec.certify.campaign.parts import default_parts
    from attnspec.certify.campaign.replay import replay as again
    from attnspec.certify.evidence.counterexample import find_counterexample, read_counterexample
    from attnspec.certify.evidence.proofs import not_compiled_here
    from attnspec.certify.evidence.report.text import refutation

    record = read_counterexample(find_counterexample(name, (out or Path("cert"),)))
    parts = default_parts()
    try:
        proofs = parts.proofs()
    except UsageError as error:
        # Whether the proofs are current changes nothing about what the kernel computes.
        proofs = not_compiled_here(str(error))
    found = again(record, parts, proofs)
    if found.skip is not None:
        click.echo(f"{record.id}: nothing could be tested: {found.skip.text}")
        return ExitCode.INCOMPLETE
    if found.refuted:
        click.echo(refutation(found.record, proofs))
        return ExitCode.REFUTED
    click.echo(f"{record.id} holds now: {record.property} of {record.subject} on {record.device}, {record.dtype}")
    return ExitCode.CERTIFIED


@main.command()
@click.argument("name", metavar="ID|FILE")
@click.option("--subject", metavar="SPEC", help="Show the call to this subject, under its own ledger.")
@click.option("--device", help="Device to run on. Default: the counter-example's, or cpu.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to look for the id in. Default: cert.")
@_clear
def explain(name: str, subject: str | None, device: str | None, out: Path | None) -> ExitCode:
    """Run a failing trial again and show where the subject leaves what is allowed: by tensor, row and stage.

    ID|FILE is a counter-example, or a call written by attnspec.pyspec.call_to_json (then --subject is needed).
    Exit 1 if anything leaves, 0 if all is inside, 4 if the subject does not claim the call.
    """
    from attnspec.certify.campaign.explain import asked
    from attnspec.certify.campaign.explain import explain as explained
    from attnspec.certify.campaign.parts import default_parts
    from attnspec.certify.evidence.report.explained import explanation

    found = explained(asked(name, subject, device, (out or Path("cert"),)), default_parts())
    click.echo(explanation(found))
    if found.outcome.skip is not None:
        return ExitCode.INCOMPLETE
    return ExitCode.REFUTED if found.refuted else ExitCode.CERTIFIED


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@_clear
def show(folder: Path) -> ExitCode:
    """Print the certificate in an evidence folder; the exit code is the one it was given with."""
    from attnspec.certify.evidence.certificate import read_certificate
    from attnspec.certify.evidence.counterexample import read_counterexample
    from attnspec.certify.evidence.report.summary import last_line, print_certificate
    from attnspec.certify.evidence.report.text import place_of, refutations

    certificate = read_certificate(folder)
    out = folder if folder.is_dir() else folder.parent
    console = _console()
    files = [out / "counterexamples" / f"{row.counterexample}.json" for row in certificate.properties]
    found = [read_counterexample(file) for file in files if file.is_file()]
    if found:
        text = refutations(found, certificate.proofs, place_of(out))
        console.print(text + "\n", highlight=False, markup=False, soft_wrap=True)
    print_certificate(console, certificate, out)
    console.print(last_line(certificate), highlight=False, markup=False, soft_wrap=True)
    return ExitCode(certificate.exit_code)


if __name__ == "__main__":
    main()
