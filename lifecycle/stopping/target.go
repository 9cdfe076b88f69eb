// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Target is the root workload that is meant. The version is the one it was seen
// in; where the cluster does not serve that any more, another one is used.
type Target struct {
	schema.GroupVersionKind
	Namespace, Name string
	// UID tells it from another that was made under its name. It is required.
	UID types.UID
}

func (t Target) String() string {
	return fmt.Sprintf("%s %s/%s", t.Kind, t.Namespace, t.Name)
}

// State is what a root workload says of itself.
type State string

// The states.
const (
	// Running: it asks to run.
	Running State = "Running"
	// Stopping: it does not ask to run, and says that it still has pods, or is
	// being deleted. Other kinds that do not count their pods are never Stopping.
	Stopping State = "Stopping"
	// Stopped: it does not ask to run, or has ended by itself. Whether pods are
	// left the pods tell.
	Stopped State = "Stopped"
	// Gone: there is no such object, or another one has its name.
	Gone State = "Gone"
)
