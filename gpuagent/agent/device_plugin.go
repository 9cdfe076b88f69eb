// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// pluginState is of which devices the device plugin was last told, kept on disk: if the agent
// ends between a change and the signal, the next one sends it.
type pluginState struct {
	dir      string // the folder
	reported map[v1alpha1.GPUUUID]string
	outdated bool
	retryAt  time.Time // not before
}

func (t *pluginState) path() string { return filepath.Join(t.dir, "told.json") }

// load reads what was kept. Where nothing is known all is to be told.
func (t *pluginState) load() error {
	t.reported = map[v1alpha1.GPUUUID]string{}
	raw, err := os.ReadFile(t.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &t.reported); err != nil || t.reported == nil {
		t.reported = map[v1alpha1.GPUUUID]string{}
		return fmt.Errorf("%s: %w", t.path(), err)
	}
	return nil
}

// invalidate notes that devices came or went: the plugin is to be told in any case, by the
// next agent where this one ends before.
func (t *pluginState) invalidate() error {
	t.outdated = true
	if err := os.Remove(t.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// changedGPUs are the GPUs of which the plugin is to be told: those that the spec decides and
// that are another than when it was told last. A GPU that does not answer is no news:
// a plugin that starts beside one may not come up again.
func (t *pluginState) changedGPUs(l *observation) map[v1alpha1.GPUUUID]string {
	news := map[v1alpha1.GPUUUID]string{}
	for i := range l.gpus {
		gpu := &l.gpus[i]
		decided := slices.ContainsFunc(l.desired(), func(d v1alpha1.DesiredGPU) bool { return d.UUID == gpu.UUID })
		if is := deviceSignature(gpu); decided && gpu.Health == v1alpha1.GPUHealthy && t.reported[gpu.UUID] != is {
			news[gpu.UUID] = is
		}
	}
	return news
}

// deviceSignature are what a plugin finds on a GPU.
func deviceSignature(gpu *v1alpha1.ObservedGPU) string {
	list := []string{string(gpu.MIG.Current)}
	for i := range gpu.Instances {
		// With the place, as there are drivers that give a UUID again to another instance.
		if it := &gpu.Instances[i]; it.UUID != "" {
			list = append(list, fmt.Sprintf("%s@%d=%s", it.Profile, it.Start, it.UUID))
		}
	}
	return strings.Join(list, " ")
}

// save notes that the plugin was told. What is not on disk is only told once more.
func (t *pluginState) save(news map[v1alpha1.GPUUUID]string) error {
	t.outdated = false
	for uuid, is := range news {
		t.reported[uuid] = is
	}
	raw, err := json.Marshal(t.reported)
	if err != nil {
		return err
	}
	temporary := t.path() + ".new"
	if err := os.WriteFile(temporary, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, t.path())
}

// reloadDevicePlugin has the device plugin look again where there is news for it.
func (a *agent) reloadDevicePlugin(l *observation) {
	if l.gpus == nil || len(l.conflicts) > 0 || !a.layoutState.recovered {
		return
	}
	news := a.pluginState.changedGPUs(l)
	if len(news) == 0 && !a.pluginState.outdated {
		a.layoutState.pluginError = nil
		return
	}
	if time.Now().Before(a.pluginState.retryAt) {
		return
	}
	processes, err := a.devicePlugin.Reload()
	if err != nil {
		if processes > 0 {
			// Some were told and have begun to enumerate: not again at each look.
			a.pluginState.retryAt = time.Now().Add(a.cfg.Intervals.Retry.Duration)
		}
		pluginSignals.WithLabelValues("failed").Inc()
		if a.layoutState.pluginError == nil {
			a.log.Error(err, "the device plugin does not know yet how the GPUs are cut; it is tried again")
		}
		a.layoutState.pluginError = err
		return
	}
	pluginSignals.WithLabelValues("sent").Inc()
	a.layoutState.pluginError = nil
	a.log.Info("the device plugin enumerates its devices again", "processes", processes, "gpus", len(news))
	if err := a.pluginState.save(news); err != nil {
		a.log.Error(err, "what the device plugin was told is not kept; it is told again after a restart")
	}
}
