"""A robot that uses the stock `openpi-client`; runs in that client's own environment, prints what it saw as JSON.

Argument: JSON {"uri", "key", "steps": [[name, {…}], …]}; see `STEPS`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from openpi_client import image_tools
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy


def picture(seed: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def value(spec: Any) -> Any:
    """Arrays are written {"picture": seed}, {"zeros": n}."""
    if isinstance(spec, dict):
        if "picture" in spec:
            shown = image_tools.resize_with_pad(picture(spec["picture"], 60, 80), 64, 64)
            return image_tools.convert_to_uint8(shown)
        if "zeros" in spec:
            return np.zeros(spec["zeros"])
        return {name: value(each) for name, each in spec.items()}
    return spec


def shown(result: Any) -> Any:
    if isinstance(result, np.ndarray):
        return {"shape": list(result.shape), "dtype": result.dtype.str, "values": result.reshape(-1).tolist()}
    if isinstance(result, dict):
        return {name: shown(each) for name, each in result.items()}
    return result


def main() -> None:
    given = json.loads(sys.argv[1])
    policy = WebsocketClientPolicy(given["uri"], None, given.get("key"))
    seen = [shown(policy.get_server_metadata())]
    for kind, observation in given["steps"]:
        asked = ActionChunkBroker(policy, 4) if kind == "broker" else policy
        for _ in range(6 if kind == "broker" else 1):
            try:
                seen.append(shown(asked.infer(value(observation))))
            except RuntimeError as error:
                seen.append({"error": str(error)})
    print(json.dumps(seen))


main()
