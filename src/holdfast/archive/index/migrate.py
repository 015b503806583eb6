"""Migrates the tables of an index to the newest version, by the numbered steps in migrations/versions."""

from pathlib import Path

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from holdfast.archive.index import migrations
from holdfast.archive.index.tables import METADATA

FOLDER = Path(migrations.__file__).parent


def migrate(connection: Connection) -> None:
    """Migrates the tables within the caller's transaction. Raises SQLAlchemyError."""
    script = scripts()

    def steps(revision: object, context: object) -> object:
        return script._upgrade_revs("head", revision)  # type: ignore[arg-type]

    with EnvironmentContext(Config(), script, fn=steps) as environment:
        environment.configure(connection=connection, target_metadata=METADATA)
        environment.run_migrations()


def scripts() -> ScriptDirectory:
    return ScriptDirectory(str(FOLDER))
