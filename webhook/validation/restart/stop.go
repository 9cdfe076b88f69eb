// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// StoppedClockIndex indexes the clocks of stopped workloads by the workload's name and by its template hash.
const StoppedClockIndex = "status.stopped"

// IndexStoppedClocks registers [StoppedClockIndex].
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

// activeStop is a stop that has not ended.
type activeStop struct {
	// until is the end; zero if the stop only ends by a decision.
	until time.Time
	// clock has the stop; nil if only the object's annotation is known.
	clock *v1alpha1.WorkloadClock
	// isCopy reports whether the stopped workload is another one with the same template.
	isCopy bool
}

// findStop returns the stop that applies to a start, or nil.
func (v *Validator) findStop(ctx context.Context, s *startRequest) (*activeStop, error) {
	if s.before != nil {
		until, marked := workloadkind.ParseStoppedUntil(s.before)
		if marked && s.byController && s.kind != kueueWorkloadKind {
			return nil, nil // a ReplicaSet keeps the annotation after its Deployment lost it
		}
		if marked {
			if !until.IsZero() && !v.Clock.Now().Before(until) {
				return nil, nil
			}
			return &activeStop{until: until}, nil
		}
		if s.kind == cronJobKind || metav1.GetControllerOfNoCopy(s.before) != nil {
			return nil, nil // its Jobs or its controller are stopped instead
		}
	}
	found, err := v.longestStop(ctx, s.namespace, nameKey(s.resource.Group, s.name), func(c *v1alpha1.WorkloadClock) bool {
		return s.matchesClock(c) && (s.isSameObject(c) || s.isSameCreator(c))
	})
	if found != nil || err != nil || s.hash == "" {
		return found, err
	}
	own, err := v.ownClock(ctx, s)
	if err != nil {
		return nil, err
	}
	found, err = v.longestStop(ctx, s.namespace, templateHashKey(s.hash), func(c *v1alpha1.WorkloadClock) bool {
		// Workloads that ran at the same time have their own clocks.
		return s.isSameCreator(c) && (own == nil || c.RanAfter(&own.Status))
	})
	if found != nil {
		found.isCopy = true
	}
	return found, err
}

// longestStop returns the stop with the latest end among the matching clocks of an index key, or nil.
func (v *Validator) longestStop(
	ctx context.Context, namespace, key string, match func(*v1alpha1.WorkloadClock) bool,
) (*activeStop, error) {
	var clocks v1alpha1.WorkloadClockList
	err := v.Clocks.List(ctx, &clocks, client.InNamespace(namespace), client.MatchingFields{StoppedClockIndex: key},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list stopped workloads in namespace %s: %w", namespace, err)
	}
	now := v.Clock.Now()
	var longest *activeStop
	for i := range clocks.Items {
		c := &clocks.Items[i]
		stopped := c.Status.Stopped
		if stopped == nil || !match(c) {
			continue
		}
		if stopped.Until == nil {
			return &activeStop{clock: c}, nil
		}
		if until := stopped.Until.Time; now.Before(until) && (longest == nil || longest.until.Before(until)) {
			longest = &activeStop{until: until, clock: c}
		}
	}
	return longest, nil
}

// matchesClock reports whether a clock is that of the started workload.
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

// isSameObject reports whether the started object is the one that was stopped. A clock without the UID of its workload
// is older than the object's first pod.
func (s *startRequest) isSameObject(c *v1alpha1.WorkloadClock) bool {
	return !s.isCreate && (s.uid == "" || c.Status.RootUID == "" || s.uid == c.Status.RootUID)
}

// isSameCreator reports whether the creator of the started workload used the time of a clock. Each run of a CronJob
// continues the stop of an earlier one. Lifecycle stops again what its creator lets a ServiceAccount scale.
func (s *startRequest) isSameCreator(c *v1alpha1.WorkloadClock) bool {
	switch {
	case s.cronJob != "":
	case s.kind == (schema.GroupKind{}) && strings.HasPrefix(s.creator, serviceAccountPrefix):
		return s.creator == c.Status.CreatedBy // an autoscaler scales the workloads of all users
	default:
		return c.CountsFor(s.creator)
	}
	run, found := strings.CutPrefix(c.Spec.Root.Name, s.cronJob+"-")
	return found && run != "" && strings.Trim(run, "0123456789") == ""
}

// serviceAccountPrefix begins the user names of ServiceAccounts.
const serviceAccountPrefix = "system:serviceaccount:"

// ownClock returns the clock of the started workload, or nil if it has not run before.
func (v *Validator) ownClock(ctx context.Context, s *startRequest) (*v1alpha1.WorkloadClock, error) {
	if s.isCreate {
		return nil, nil
	}
	clock := &v1alpha1.WorkloadClock{}
	key := client.ObjectKey{Namespace: s.namespace, Name: v1alpha1.WorkloadClockName(s.kind.Group, s.kind.Kind, s.name)}
	if err := v.Clocks.Get(ctx, key, clock); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return clock, nil
}

func rootKind(c *v1alpha1.WorkloadClock) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(c.Spec.Root.APIVersion, c.Spec.Root.Kind)
}
