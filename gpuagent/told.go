// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

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

// told is of which devices the device plugin was last told, kept on disk: if the agent
// ends between a change and the signal, the next one sends it.
type told struct {
	path   string // the folder
	gpus   map[v1alpha1.GPUUUID]string
	behind bool
	again  time.Time // not before
}

func (t *told) file() string { return filepath.Join(t.path, "told.json") }

// load reads what was kept. Where nothing is known all is to be told.
func (t *told) load() error {
	t.gpus = map[v1alpha1.GPUUUID]string{}
	raw, err := os.ReadFile(t.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &t.gpus); err != nil || t.gpus == nil {
		t.gpus = map[v1alpha1.GPUUUID]string{}
		return fmt.Errorf("%s: %w", t.file(), err)
	}
	return nil
}

// forget notes that devices came or went: the plugin is to be told in any case, by the
// next agent where this one ends before.
func (t *told) forget() error {
	t.behind = true
	if err := os.Remove(t.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// news are the GPUs of which the plugin is to be told: those that the spec decides and
// that are another than when it was told last. A GPU that does not answer is no news:
// a plugin that starts beside one may not come up again.
func (t *told) news(l *look) map[v1alpha1.GPUUUID]string {
	news := map[v1alpha1.GPUUUID]string{}
	for i := range l.gpus {
		gpu := &l.gpus[i]
		decided := slices.ContainsFunc(l.desired(), func(d v1alpha1.DesiredGPU) bool { return d.UUID == gpu.UUID })
		if is := devices(gpu); decided && gpu.Health == v1alpha1.GPUHealthy && t.gpus[gpu.UUID] != is {
			news[gpu.UUID] = is
		}
	}
	return news
}

// devices are what a plugin finds on a GPU.
func devices(gpu *v1alpha1.ObservedGPU) string {
	list := []string{string(gpu.MIG.Current)}
	for i := range gpu.Instances {
		// With the place, as there are drivers that give a UUID again to another instance.
		if it := &gpu.Instances[i]; it.UUID != "" {
			list = append(list, fmt.Sprintf("%s@%d=%s", it.Profile, it.Start, it.UUID))
		}
	}
	return strings.Join(list, " ")
}

// keep notes that the plugin was told. What is not on disk is only told once more.
func (t *told) keep(news map[v1alpha1.GPUUUID]string) error {
	t.behind = false
	for uuid, is := range news {
		t.gpus[uuid] = is
	}
	raw, err := json.Marshal(t.gpus)
	if err != nil {
		return err
	}
	temporary := t.file() + ".new"
	if err := os.WriteFile(temporary, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, t.file())
}

// tell has the device plugin look again where there is news for it.
func (a *agent) tell(l *look) {
	if l.gpus == nil || len(l.rivals) > 0 || !a.layout.recovered {
		return
	}
	news := a.told.news(l)
	if len(news) == 0 && !a.told.behind {
		a.layout.untold = nil
		return
	}
	if time.Now().Before(a.told.again) {
		return
	}
	processes, err := a.plugin.HangUp()
	if err != nil {
		if processes > 0 {
			// Some were told and have begun to enumerate: not again at each look.
			a.told.again = time.Now().Add(a.cfg.Intervals.Retry.Duration)
		}
		signals.WithLabelValues("failed").Inc()
		if a.layout.untold == nil {
			a.log.Error(err, "the device plugin does not know yet how the GPUs are cut; it is tried again")
		}
		a.layout.untold = err
		return
	}
	signals.WithLabelValues("sent").Inc()
	a.layout.untold = nil
	a.log.Info("the device plugin enumerates its devices again", "processes", processes, "gpus", len(news))
	if err := a.told.keep(news); err != nil {
		a.log.Error(err, "what the device plugin was told is not kept; it is told again after a restart")
	}
}
