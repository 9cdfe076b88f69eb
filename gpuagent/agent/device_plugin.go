// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/host"
)

// devicePlugin records on disk which devices the device plugin last enumerated. If the agent ends
// between a change and the signal, the next agent sends the signal.
type devicePlugin struct {
	host.Daemon
	stateDir string

	enumerated map[v1alpha1.GPUUUID]string // deviceSignature by GPU
	outdated   bool                        // devices changed since
	retryAt    time.Time
	err        error // of the last reload
}

func (p *devicePlugin) path() string { return filepath.Join(p.stateDir, "device-plugin.json") }

// load reads the record. If there is no record, the plugin has to enumerate all devices.
func (p *devicePlugin) load() error {
	p.enumerated = map[v1alpha1.GPUUUID]string{}
	raw, err := os.ReadFile(p.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &p.enumerated); err != nil || p.enumerated == nil {
		p.enumerated = map[v1alpha1.GPUUUID]string{}
		return fmt.Errorf("%s: %w", p.path(), err)
	}
	return nil
}

// invalidate removes the record, so that this agent or the next reloads the plugin in any case.
func (p *devicePlugin) invalidate() error {
	p.outdated = true
	if err := os.Remove(p.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// changedGPUs returns the GPUs of the spec whose devices the plugin has not enumerated. It omits GPUs
// that do not respond: a plugin that restarts on a node with such a GPU may fail to start.
func (p *devicePlugin) changedGPUs(o observation) map[v1alpha1.GPUUUID]string {
	changed := map[v1alpha1.GPUUUID]string{}
	for i := range o.gpus {
		gpu := &o.gpus[i]
		if is := deviceSignature(gpu); o.isDesired(gpu.UUID) && gpu.Health == v1alpha1.GPUHealthy && p.enumerated[gpu.UUID] != is {
			changed[gpu.UUID] = is
		}
	}
	return changed
}

// deviceSignature describes the devices that a plugin enumerates on a GPU.
func deviceSignature(gpu *v1alpha1.ObservedGPU) string {
	list := []string{string(gpu.MIG.Current)}
	for i := range gpu.Instances {
		// Some drivers give a destroyed instance's UUID to a new instance at another place.
		if it := &gpu.Instances[i]; it.UUID != "" {
			list = append(list, fmt.Sprintf("%s@%d=%s", it.Profile, it.Start, it.UUID))
		}
	}
	return strings.Join(list, " ")
}

// save records the devices that the plugin enumerates now.
func (p *devicePlugin) save(changed map[v1alpha1.GPUUUID]string) error {
	p.outdated = false
	maps.Copy(p.enumerated, changed)
	raw, err := json.Marshal(p.enumerated)
	if err != nil {
		return err
	}
	temporary := p.path() + ".new"
	if err := os.WriteFile(temporary, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, p.path())
}

// reconcileOffer brings the devices that the device plugin offers to those of the GPUs. It returns an error
// if they differ.
func (r *reconciler) reconcileOffer(o observation) error {
	if err := r.reconcileDeviceNodes(o); err != nil {
		return err
	}
	return r.reconcileDevicePlugin(o)
}

// invalidateOffer has the device nodes verified and the device plugin told in any case.
func (r *reconciler) invalidateOffer() {
	r.nodes.invalidate()
	if err := r.plugin.invalidate(); err != nil {
		r.log.Error(err, "Failed to remove device plugin state; the next agent may not reload the plugin")
	}
}

// reconcileDevicePlugin makes the device plugin enumerate its devices again if they changed. It returns
// an error if the plugin has not done so yet.
func (r *reconciler) reconcileDevicePlugin(o observation) error {
	p := &r.plugin
	if o.gpus == nil || len(o.conflicts) > 0 || !r.layout.recovered {
		return p.err
	}
	changed := p.changedGPUs(o)
	if len(changed) == 0 && !p.outdated {
		p.err = nil
		return nil
	}
	if time.Now().Before(p.retryAt) {
		return p.err
	}
	failedBefore := p.err != nil
	var processes int
	if processes, p.err = p.Reload(); p.err != nil {
		if processes > 0 {
			// Some processes reload already; another signal in each pass would keep them from finishing.
			p.retryAt = time.Now().Add(r.cfg.Intervals.Retry.Duration)
		}
		pluginSignals.WithLabelValues("failed").Inc()
		if !failedBefore {
			r.log.Error(p.err, "Failed to reload device plugin")
		}
		return p.err
	}
	pluginSignals.WithLabelValues("sent").Inc()
	r.log.Info("Reloaded device plugin", "processes", processes, "gpus", len(changed))
	r.exporter.outdated = true
	r.reconcileDCGMExporter() // before the record, so that the next agent reloads it if this one ends now
	if err := p.save(changed); err != nil {
		r.log.Error(err, "Failed to record device plugin state; the next agent reloads the plugin again")
	}
	return nil
}

// dcgmExporterInterval separates two signals: dcgm-exporter ignores one within two seconds after the last,
// and while it reloads.
const dcgmExporterInterval = 5 * time.Second

// dcgmExporter is dcgm-exporter, which reports the metrics of those MIG devices that existed when it
// started or was reloaded. It may run on some nodes only.
type dcgmExporter struct {
	host.Daemon

	outdated   bool // devices changed since
	retryAt    time.Time
	reloadedAt time.Time
	failed     bool
}

// reconcileDCGMExporter makes dcgm-exporter report the devices that the device plugin offers. An error
// concerns metrics alone, so that the layout counts as applied.
func (r *reconciler) reconcileDCGMExporter() {
	e := &r.exporter
	now := time.Now()
	if !e.outdated || now.Before(e.retryAt) {
		return
	}
	processes, err := e.Reload()
	switch failedBefore := e.failed; {
	case errors.Is(err, host.ErrDaemonNotFound): // It observes the devices when it starts.
		e.outdated, e.failed = false, false
	case err != nil:
		e.failed, e.retryAt = true, now.Add(r.cfg.Intervals.Retry.Duration)
		exporterSignals.WithLabelValues("failed").Inc()
		if !failedBefore {
			r.log.Error(err, "Failed to reload dcgm-exporter; it reports metrics of former MIG devices")
		}
	default:
		e.outdated, e.failed, e.retryAt, e.reloadedAt = false, false, now.Add(dcgmExporterInterval), now
		exporterSignals.WithLabelValues("sent").Inc()
		r.log.Info("Reloaded dcgm-exporter", "processes", processes)
	}
}
