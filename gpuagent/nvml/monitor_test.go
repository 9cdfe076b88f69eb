// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeDriver blocks in Init until leave is closed, and returns ErrInUse for a MIG mode.
type fakeDriver struct {
	Library
	entered, leave chan struct{}
}

func (d fakeDriver) Init() error {
	close(d.entered)
	<-d.leave
	return nil
}

func (d fakeDriver) SetMIGMode(string, Mode) (activation, err error) { return ErrInUse, nil }

func (d fakeDriver) Instances(string) ([]Instance, error) {
	return []Instance{{ID: 3}}, nil
}

func TestHungCall(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	d := fakeDriver{entered: make(chan struct{}), leave: make(chan struct{})}
	l := &MonitoredLibrary{Driver: d, Now: func() time.Time { return now }}
	ended := make(chan error)
	go func() { ended <- l.Init() }()
	<-d.entered
	now = now.Add(2 * time.Minute)
	if err := l.HungCall(2 * time.Minute); err != nil {
		t.Errorf("after just two minutes: %v", err)
	}
	now = now.Add(time.Second)
	err := l.HungCall(2 * time.Minute)
	if err == nil || !strings.Contains(err.Error(), "Init") || !strings.Contains(err.Error(), "2027-01-15T08:00:00Z") {
		t.Errorf("%v", err)
	}
	now = now.Add(time.Minute)
	if later := l.HungCall(2 * time.Minute); later == nil || later.Error() != err.Error() {
		t.Errorf("the error changes: %v", later)
	}
	close(d.leave)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := l.HungCall(0); err != nil {
		t.Errorf("the call has returned: %v", err)
	}
}

func TestMonitoredLibrary(t *testing.T) {
	var got []string
	now := time.Unix(1_800_000_000, 0)
	l := &MonitoredLibrary{
		Driver: fakeDriver{},
		Now:    func() time.Time { now = now.Add(time.Second); return now },
		OnReturn: func(call string, took time.Duration, err error) {
			text := call + " " + took.String()
			if err != nil {
				text += " " + err.Error()
			}
			got = append(got, text)
		},
	}
	if activation, err := l.SetMIGMode("GPU-1", Enabled); !errors.Is(activation, ErrInUse) || err != nil {
		t.Errorf("%v, %v: want the activation error apart", activation, err)
	}
	if list, err := l.Instances("GPU-1"); len(list) != 1 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if diff := cmp.Diff([]string{"SetMIGMode 1s NVML: in use (19)", "Instances 1s"}, got); diff != "" {
		t.Error(diff)
	}
}
