// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// StoppedClockIndex is the index by which the cache finds the clocks of workloads that
// Sluice stopped, by what they are called and by what they run.
const StoppedClockIndex = "status.stopped"

// IndexStoppedClocks makes the index.
func IndexStoppedClocks(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &v1alpha1.WorkloadClock{}, StoppedClockIndex, stoppedClockKeys)
}

func stoppedClockKeys(object client.Object) []string {
	c, ok := object.(*v1alpha1.WorkloadClock)
	if !ok || c.Status.Stopped == nil {
		return nil
	}
	keys := []string{nameKey(rootKind(c).Group, c.Spec.Root.Name)}
	if c.Status.TemplateHash != "" {
		keys = append(keys, templateHashKey(c.Status.TemplateHash))
	}
	return keys
}

func nameKey(group, name string) string  { return "name " + group + "/" + name }
func templateHashKey(hash string) string { return "runs " + hash }

// stop is one that is in force.
type stop struct {
	// until is when it is over; zero where somebody has to decide.
	until time.Time
	// clock has recorded it; nil where the mark on the object says it.
	clock *v1alpha1.WorkloadClock
	// isCopy tells that the stopped workload is another, which runs the same.
	isCopy bool
}

// findStop is the stop that holds for what is started; nil where none does.
func (h *Validator) findStop(ctx context.Context, s *startRequest) (*stop, error) {
	if s.before != nil {
		until, marked := workloadkind.ParseStoppedUntil(s.before)
		if marked && s.byController && s.kind != kueueWorkloadKind {
			return nil, nil // a ReplicaSet keeps its Deployment's mark, also when that has lost it
		}
		if marked {
			if !until.IsZero() && !h.Clock.Now().Before(until) {
				return nil, nil
			}
			return &stop{until: until}, nil
		}
		if s.kind == cronJobKind || metav1.GetControllerOfNoCopy(s.before) != nil {
			return nil, nil // its runs, or its controller, are stopped instead
		}
	}
	found, err := h.longestStop(ctx, s.namespace, nameKey(s.resource.Group, s.name), s.matchesClock)
	if found != nil || err != nil || s.hash == "" {
		return found, err
	}
	if !s.isCreate {
		if known, err := h.hasClock(ctx, s); known || err != nil {
			return nil, err // its own time counts
		}
	}
	found, err = h.longestStop(ctx, s.namespace, templateHashKey(s.hash), func(*v1alpha1.WorkloadClock) bool { return true })
	if found != nil {
		found.isCopy = true
	}
	return found, err
}

// longestStop is the longest stop in force among the clocks under a key that match.
func (h *Validator) longestStop(ctx context.Context, namespace, key string, match func(*v1alpha1.WorkloadClock) bool) (*stop, error) {
	var clocks v1alpha1.WorkloadClockList
	err := h.Clocks.List(ctx, &clocks, client.InNamespace(namespace), client.MatchingFields{StoppedClockIndex: key}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list stopped workloads in namespace %s: %w", namespace, err)
	}
	now := h.Clock.Now()
	var longest *stop
	for i := range clocks.Items {
		c := &clocks.Items[i]
		stopped := c.Status.Stopped
		if stopped == nil || !match(c) {
			continue
		}
		if stopped.Until == nil {
			return &stop{clock: c}, nil
		}
		if until := stopped.Until.Time; now.Before(until) && (longest == nil || longest.until.Before(until)) {
			longest = &stop{until: until, clock: c}
		}
	}
	return longest, nil
}

// matchesClock tells whether a clock is that of what is started.
func (s *startRequest) matchesClock(c *v1alpha1.WorkloadClock) bool {
	kind := rootKind(c)
	if c.Spec.Root.Name != s.name || kind.Group != s.resource.Group {
		return false
	}
	if s.kind != (schema.GroupKind{}) {
		return kind.GroupKind() == s.kind
	}
	if known, ok := workloadkind.Lookup(kind.GroupKind()); ok {
		return known.Resource == s.resource.Resource
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.Resource == strings.ToLower(s.resource.Resource)
}

// hasClock tells whether what is started has a clock: it ran before.
func (h *Validator) hasClock(ctx context.Context, s *startRequest) (bool, error) {
	key := client.ObjectKey{Namespace: s.namespace, Name: v1alpha1.WorkloadClockName(s.kind.Group, s.kind.Kind, s.name)}
	err := h.Clocks.Get(ctx, key, &v1alpha1.WorkloadClock{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func rootKind(c *v1alpha1.WorkloadClock) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(c.Spec.Root.APIVersion, c.Spec.Root.Kind)
}
