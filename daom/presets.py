"""From the configuration to the settings of a cell: what each preset is made of."""

from __future__ import annotations

import math
from typing import Any

from daom.alerting import AlertSettings
from daom.cell import CellSettings
from daom.conditions import DriftRules
from daom.config import Config, SignalConfig
from daom.event_time import CellClock
from daom.lifecycle import Lifecycle
from daom.series import SignalSettings
from daom.suppression import (
    Cooldown,
    FewEngines,
    FleetWide,
    Rule,
    drifts_itself,
    maintenance,
    newcomers,
    not_drifting,
    same_incident,
)
from daom.threshold import (
    ExpectedP99Threshold,
    FixedThreshold,
    NoThreshold,
    Sits2026Threshold,
    ThresholdPolicy,
)
from detectors.buckets import BucketWatch
from detectors.kl import KlDetector
from detectors.peers import Peers
from detectors.protocol import Detector
from detectors.saturation import SaturationWatch
from detectors.sits2026 import ROOT_CAUSE_AFTER_S, Sits2026Detector


def cell_settings(config: Config) -> CellSettings:
    """Return how every cell is judged under ``config``."""
    return CellSettings(
        signals=tuple(_signal(name, signal, config) for name, signal in config.signals.items()),
        drift=_drift_rules(config),
        alerts=_alerts(config),
        clock=CellClock(config.time.max_ahead_s),
        pane_s=config.time.pane_s,
        lateness_s=config.time.lateness_s,
        wait_s=config.time.max_ahead_s,
        silent_after_s=config.alerts.silent_after_s,
        forget_after_s=config.alerts.forget_after_s,
        stalled_after_s=config.alerts.stalled_after_s,
        limits=config.limits.limits(),
    )


def _signal(name: str, signal: SignalConfig, config: Config) -> SignalSettings:
    return SignalSettings(
        name=name,
        table=signal.table,
        column=signal.column or name,
        workload=signal.workload,
        workload_part=signal.workload_part,
        detector=_detector(signal, config),
        threshold=_threshold(signal, config),
        peers=_peers(config),
        ceiling_s=signal.ceiling_s,
        # The other presets' detectors take samples one by one.
        takes_buckets=config.preset == "default",
    )


def _detector(signal: SignalConfig, config: Config) -> Detector[Any]:
    match config.preset:
        case "default":
            settings = config.detector.model_dump(exclude={"peers", "peers_min_slowdown"})
            base = signal.workload_base if signal.workload else None
            kl = KlDetector(strata_base=base, pane_s=config.time.pane_s, **settings)
            return BucketWatch(SaturationWatch(kl))
        case "sits2026":
            return Sits2026Detector()
        case kind:
            from detectors.river_adapters import RiverDetector  # noqa: PLC0415 - river is an extra.

            return RiverDetector(kind)


def _peers(config: Config) -> Peers | None:
    """Return how engines are compared; the other presets know no peers."""
    if config.preset != "default" or not config.detector.peers:
        return None
    return Peers(
        pane_s=config.time.pane_s,
        false_alarm_interval_s=config.detector.false_alarm_interval_s,
        min_slowdown=config.detector.peers_min_slowdown,
        adopt_after_s=config.detector.adopt_after_s,
    )


def _threshold(signal: SignalConfig, config: Config) -> ThresholdPolicy:
    if config.preset == "default":
        ceiling_s = math.inf if signal.ceiling_s is None else signal.ceiling_s
        return ExpectedP99Threshold(
            config.threshold.headroom, config.threshold.min_change, ceiling_s
        )
    if signal.slo_s is None:
        return NoThreshold()
    if config.preset == "sits2026":
        return Sits2026Threshold(signal.slo_s)
    return FixedThreshold(signal.slo_s)


def _drift_rules(config: Config) -> DriftRules:
    # River's detectors say that something changed, not by how much.
    knows_slowdown = config.preset == "default"
    return DriftRules(
        min_slowdown=config.alerts.min_slowdown if knows_slowdown else 0.0,
        critical_slowdown=config.alerts.critical_slowdown,
        threshold_alone=config.preset == "sits2026",
    )


def _alerts(config: Config) -> AlertSettings:
    alerts = config.alerts
    share = alerts.fleet_share
    rules: tuple[Rule, ...] = (
        maintenance,
        not_drifting,
        FleetWide(share, alerts.pending_s),
        FewEngines(share),
        newcomers,
        same_incident,
        drifts_itself,
        Cooldown(alerts.cooldown_s),
    )
    return AlertSettings(
        drift=Lifecycle(alerts.pending_s, alerts.resolve_s),
        presence=Lifecycle(0.0, config.time.pane_s, relapse_resolve_s=alerts.resolve_s),
        rules=rules,
        root_cause_after_s=ROOT_CAUSE_AFTER_S if config.preset == "sits2026" else None,
    )
