"""The TypeScript compiler, for tests of what programs may do by the types of the client."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.needs import missing, need_program
from tests.server_process import ROOT

MODULES = ROOT / ".venv-npm" / "node_modules"
SCRIPTS = {
    "onceward": "client",
    "onceward/http": "http",
    "onceward/react": "react",
    "onceward/roomservice": "roomservice",
    "onceward/tokens": "backend/tokens",
}
"""The scripts of the client, by the names under which npm has them."""
TYPES = {name: ROOT / "clients" / "js" / f"{file}.d.ts" for name, file in SCRIPTS.items()}
JAVASCRIPT = {
    "allowJs": True,
    "checkJs": True,
    "noImplicitAny": False,  # nobody says the types of parameters there
    "skipLibCheck": True,  # published types name modules that there are not
}


def compiled(
    folder: Path, files: Sequence[str], types: Mapping[str, Path] = TYPES, **options: Any
) -> subprocess.CompletedProcess[str]:
    """What the compiler says of programs in a folder, which import modules with such types."""
    compiler = MODULES / "typescript" / "bin" / "tsc"
    if not compiler.is_file():
        missing("there is no TypeScript here: scripts/npm.sh installs it")
    settings = {
        "compilerOptions": {
            "target": "es2022",
            "module": "esnext",
            "moduleResolution": "bundler",
            "lib": ["es2022"],
            "types": [],
            "strict": True,
            "noEmit": True,
            "paths": {name: [str(path)] for name, path in types.items()},
            **options,
        },
        "files": files,
    }
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    return subprocess.run(
        [need_program("node"), compiler, "--project", folder],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=folder,
        check=False,
    )
