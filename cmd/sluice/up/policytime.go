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
	"sluice.dev/test/cluster"
)

// PolicyTime is where policy time stands, and how fast it runs.
type PolicyTime struct {
	// Now is the present instant of policy time.
	Now time.Time `json:"now"`
	// Real is the same instant of real time.
	Real time.Time `json:"real"`
	// AheadSeconds is by how many seconds policy time is ahead of real time.
	AheadSeconds int64 `json:"aheadSeconds"`
	// Scale is how many times as fast as real time it runs.
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

// PolicyTimeOf is where policy time stands by a clock's file.
func PolicyTimeOf(file *policytime.File) PolicyTime {
	line, here := file.Timeline(), time.Now()
	now := line.At(here)
	return PolicyTime{
		Now: now, Real: here.UTC(), Scale: line.Scale(here),
		AheadSeconds: int64(now.Sub(here).Round(time.Second) / time.Second),
	}
}

// Summary is where policy time stands, in a line: the instant in zone, how far it
// is ahead, and its pace.
func (p PolicyTime) Summary(zone *time.Location) string {
	text := printer.FormatSecond(p.Now, zone)
	if p.AheadSeconds != 0 {
		text += ", " + printer.FormatDuration(time.Duration(p.AheadSeconds)*time.Second) + " ahead of real time"
	}
	if p.Scale != 1 {
		text += ", and runs " + formatScale(p.Scale) + " times as fast"
	}
	return text
}

// ScaleText is the pace as people write it: 1, 60 or 1.5.
func (p PolicyTime) ScaleText() string { return formatScale(p.Scale) }

// ValidateScale says what is wrong with a pace of policy time. The message begins
// with the value.
func ValidateScale(scale float64) error {
	if !(scale >= 1 && scale <= policytime.MaxScale) { // also refuses NaN
		return fmt.Errorf("%s: want a number from 1 to %d: how many times as fast as real time policy time runs", formatScale(scale), policytime.MaxScale)
	}
	return nil
}

// applyTimeScale makes policy time run at the pace that is asked for. Where it runs
// so already, nothing is written.
func (o Options) applyTimeScale() error {
	file, err := OpenClock(o.Dir)
	if err != nil || o.TimeScale == 0 || PolicyTimeOf(file).Scale == o.TimeScale {
		return err
	}
	return file.SetScale(o.TimeScale)
}

// withPolicyTime is the report with policy time as it is now, where that is not real time.
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
