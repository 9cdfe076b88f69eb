// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"sluice.dev/api/clock"
	"sluice.dev/cmd/sluice/show"
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

// ErrNoCluster says that a folder is no embedded cluster's. Everywhere else
// policy time is real time.
var ErrNoCluster = errors.New("no embedded cluster")

// Clock is the policy time of the cluster in dir, whether it runs or not. It
// wraps [ErrNoCluster] where dir is no cluster's.
func Clock(dir string) (*clock.File, error) {
	if !cluster.Exists(dir) {
		who := theCaller()
		return nil, fmt.Errorf("%w in %s: name its folder with --dir, or start one with `%s up --dir %[2]s`; on every other cluster policy time is real time, which cannot be stepped",
			ErrNoCluster, who.path(dir), who.program)
	}
	return clock.OpenFile(filepath.Join(dir, clock.FileName), nil)
}

// TimeOf is where policy time stands by a clock's file.
func TimeOf(file *clock.File) PolicyTime {
	line, here := file.Timeline(), time.Now()
	now := line.At(here)
	return PolicyTime{
		Now: now, Real: here.UTC(), Scale: line.Scale(here),
		AheadSeconds: int64(now.Sub(here).Round(time.Second) / time.Second),
	}
}

// Phrase is where policy time stands, in a line: the instant in zone, how far it
// is ahead, and its pace.
func (p PolicyTime) Phrase(zone *time.Location) string {
	text := show.Second(p.Now, zone)
	if p.AheadSeconds != 0 {
		text += ", " + show.Span(time.Duration(p.AheadSeconds)*time.Second) + " ahead of real time"
	}
	if p.Scale != 1 {
		text += ", and runs " + formatScale(p.Scale) + " times as fast"
	}
	return text
}

// ScaleText is the pace as people write it: 1, 60 or 1.5.
func (p PolicyTime) ScaleText() string { return formatScale(p.Scale) }

// CheckScale says what is wrong with a pace of policy time. The message begins
// with the value.
func CheckScale(scale float64) error {
	if !(scale >= 1 && scale <= clock.MaxScale) { // also refuses NaN
		return fmt.Errorf("%s: want a number from 1 to %d: how many times as fast as real time policy time runs", formatScale(scale), clock.MaxScale)
	}
	return nil
}

// startClock makes policy time run at the pace that is asked for. Where it runs
// so already, nothing is written.
func (o Options) startClock() error {
	file, err := Clock(o.Dir)
	if err != nil || o.TimeScale == 0 || TimeOf(file).Scale == o.TimeScale {
		return err
	}
	return file.SetScale(o.TimeScale)
}

// timed is the report with policy time as it is now, where that is not real time.
func (r Report) timed() (Report, error) {
	file, err := Clock(r.Dir)
	if err != nil {
		return r, err
	}
	r.PolicyTime = nil
	if now := TimeOf(file); now.AheadSeconds != 0 || now.Scale != 1 {
		r.PolicyTime = &now
	}
	return r, nil
}

// runsAt reports whether policy time runs at scale.
func (r Report) runsAt(scale float64) bool {
	if r.PolicyTime == nil {
		return scale == 1
	}
	return r.PolicyTime.Scale == scale
}

func formatScale(scale float64) string { return strconv.FormatFloat(scale, 'f', -1, 64) }
