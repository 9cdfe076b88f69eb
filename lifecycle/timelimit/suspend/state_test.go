// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"errors"

	"sluice.dev/api/workloadkind"
)

// State is the state of a root workload.
type State string

// The states.
const (
	// StateRunning: the workload requests pods.
	StateRunning State = "Running"
	// StateStopping: the workload requests no pods but still counts some, or is being
	// deleted. Kinds that do not count their pods are never Stopping.
	StateStopping State = "Stopping"
	// StateStopped: the workload requests no pods or has finished. Pods may still exist if
	// its kind does not count them.
	StateStopped State = "Stopped"
	// StateGone: the object does not exist, or another one has its name.
	StateGone State = "Gone"
)

// ObserveState returns the state of the workload. A deleted workload is StateGone, not an
// error.
func (s *Stopper) ObserveState(ctx context.Context, t Target) (State, error) {
	r, err := s.getRoot(ctx, t)
	err = t.wrapError("get", err)
	switch {
	case errors.Is(err, ErrGone):
		return StateGone, nil
	case err != nil:
		return "", err
	case r.kind.IsFinished(r.object):
		return StateStopped, nil
	case r.kind.RequestsPods(r.object):
		return StateRunning, nil
	case r.kind.HasActivePods(r.object) || r.kind.StopAction.Method == workloadkind.StopByDeletion:
		return StateStopping, nil
	}
	return StateStopped, nil
}

// StartCommands returns the commands that start the workload again, or none if it must be
// created again. Kueue starts a workload whose Kueue Workload becomes active.
func (s *Stopper) StartCommands(ctx context.Context, t Target) ([]string, error) {
	r, err := s.getRoot(ctx, t)
	if err != nil {
		return nil, t.wrapError("get", err)
	}
	var commands []string
	err = s.forEachQueued(ctx, r, func(workload root) error {
		if !workload.kind.RequestsPods(workload.object) {
			commands = append(commands, workload.kind.StartCommand(t.Namespace, workload.object.GetName(), 0))
		}
		return nil
	})
	if err != nil || len(commands) > 0 {
		return commands, t.wrapError("get", err)
	}
	if command := r.kind.StartCommand(t.Namespace, t.Name, workloadkind.PreviousReplicas(r.object)); command != "" {
		commands = append(commands, command)
	}
	return commands, nil
}
