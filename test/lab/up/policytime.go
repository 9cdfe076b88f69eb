// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/cluster"
)

// PolicyTime is the current policy time and its speed.
type PolicyTime struct {
	// Now is policy time.
	Now time.Time `json:"now"`
	// Real is real time.
	Real time.Time `json:"real"`
	// AheadSeconds is Now minus Real.
	AheadSeconds int64 `json:"aheadSeconds"`
	// Scale is the speed of policy time in multiples of real time.
	Scale float64 `json:"scale"`
}

// ErrNoCluster is the error for a folder that has no embedded cluster.
var ErrNoCluster = errors.New("no embedded cluster")

// CheckDir fails with [ErrNoCluster] if dir has no embedded cluster.
func CheckDir(dir string) error {
	if cluster.Exists(dir) {
		return nil
	}
	who := currentCaller()
	return fmt.Errorf("%w in %s: name its folder with --dir, or start one with `%s up --dir %[2]s`; "+
		"only an embedded cluster has its own policy time and keeps its mail", ErrNoCluster, who.shellPath(dir), who.program)
}

// OpenClock returns the policy time of the cluster in dir, which need not run.
func OpenClock(dir string) (*policytime.File, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	return policytime.OpenFile(filepath.Join(dir, policytime.FileName), nil)
}

// PolicyTimeOf returns the current policy time of a clock's file.
func PolicyTimeOf(file *policytime.File) PolicyTime {
	timeline, realTime := file.Timeline(), time.Now()
	now := timeline.At(realTime)
	return PolicyTime{
		Now: now, Real: realTime.UTC(), Scale: timeline.Scale(realTime),
		AheadSeconds: int64(now.Sub(realTime).Round(time.Second) / time.Second),
	}
}

// Summary returns policy time in zone, its lead and its speed in one line.
func (p PolicyTime) Summary(zone *time.Location) string {
	text := printer.FormatSecond(p.Now, zone)
	if p.AheadSeconds != 0 {
		text += ", " + printer.FormatDuration(time.Duration(p.AheadSeconds)*time.Second) + " ahead of real time"
	}
	if p.Scale != 1 {
		text += ", running " + formatScale(p.Scale) + " times as fast"
	}
	return text
}

// ScaleText returns the speed as a decimal: 1, 60 or 1.5.
func (p PolicyTime) ScaleText() string { return formatScale(p.Scale) }

// ValidateScale fails for a speed that policy time cannot have. The error begins
// with the value.
func ValidateScale(scale float64) error {
	if !(scale >= 1 && scale <= policytime.MaxScale) { // also refuses NaN
		return fmt.Errorf("%s: want a number from 1 to %d, the speed of policy time in multiples of real time",
			formatScale(scale), policytime.MaxScale)
	}
	return nil
}

// applyTimeScale sets the requested speed of policy time. It writes nothing if the
// speed is already right.
func (o Options) applyTimeScale() error {
	file, err := OpenClock(o.Dir)
	if err != nil || o.TimeScale == 0 || PolicyTimeOf(file).Scale == o.TimeScale {
		return err
	}
	return file.SetScale(o.TimeScale)
}

// withPolicyTime returns the report with the current policy time.
func (r Report) withPolicyTime() (Report, error) {
	file, err := OpenClock(r.Dir)
	if err != nil {
		return r, err
	}
	r.PolicyTime = nil
	if now := PolicyTimeOf(file); now.AheadSeconds != 0 || now.Scale != 1 {
		r.PolicyTime = &now
	}
	return r, nil
}

// hasTimeScale reports whether policy time runs at scale.
func (r Report) hasTimeScale(scale float64) bool {
	if r.PolicyTime == nil {
		return scale == 1
	}
	return r.PolicyTime.Scale == scale
}

func formatScale(scale float64) string { return strconv.FormatFloat(scale, 'f', -1, 64) }
