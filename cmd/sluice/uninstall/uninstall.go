// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes Sluice from a cluster without deleting or stopping any workload.
//
// What can block goes first: the webhook configurations and admission policies, which fail closed, then
// the components, then finalizers, quotas and queues, then what Sluice wrote on nodes, namespaces and
// pods. Each step finds what is left of its own, so that Run can be repeated after it ended at any point,
// and needs no component of Sluice. [Remains] is the list of what stays.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Uninstaller removes Sluice from one cluster.
type Uninstaller struct {
	Client client.Client
	// Mapper has the installed kinds.
	Mapper meta.RESTMapper
	// Out gets a line for each change, and the list of what stays.
	Out io.Writer
	// DryRun prints the changes and makes none.
	DryRun bool
	// DeleteData deletes Sluice's own objects and their kinds, too.
	DeleteData bool
	// Timeout is the longest time to wait for the components' pods to end, in machine time.
	Timeout time.Duration
	// PollInterval is the time between two reads meanwhile.
	PollInterval time.Duration
}

// action is one change of the cluster.
type action struct {
	what string
	do   func(context.Context) error
}

// step is a part of the plan. find returns what is left to do.
type step struct {
	title string
	find  func(context.Context) ([]action, error)
	// wait returns when the step's changes are effective; nil if they are at once.
	wait func(context.Context) error
}

// steps returns the plan in its order.
func (u *Uninstaller) steps() []step {
	plan := []step{
		{title: "webhook configurations, which would refuse requests without their server", find: u.findWebhooks},
		{title: "admission policies", find: u.findAdmissionPolicies},
		{title: "components", find: u.findComponents, wait: u.waitForComponents},
		{title: "admission policies that a component restored", find: u.findAdmissionPolicies},
		{title: "finalizers", find: u.findFinalizers},
		{title: "quotas and queues", find: u.findRendered},
		{title: "nodes", find: u.findNodes},
		{title: "namespaces", find: u.findNamespaces},
		{title: "pods", find: u.findPods},
		{title: "rights of the components", find: u.findComponentRights},
	}
	if u.DeleteData {
		plan = append(plan, step{title: "data", find: u.findData, wait: u.waitForData})
	}
	return plan
}

// ErrStillRuns reports that a component of Sluice restored what was removed.
var ErrStillRuns = errors.New("a component of Sluice still runs and restored admission policies: stop it, then run this command again")

// Run carries out the plan. It stops at the first error, and can be repeated.
func (u *Uninstaller) Run(ctx context.Context) error {
	for _, s := range u.steps() {
		if err := u.repeatStep(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
	}
	if !u.DryRun {
		switch restored, err := u.findAdmissionPolicies(ctx); {
		case err != nil:
			return err
		case len(restored) > 0:
			return ErrStillRuns
		}
	}
	if err := u.printRemains(ctx); err != nil {
		return err
	}
	return u.repeatStep(ctx, step{title: "rights of the uninstall hook", find: u.findHookRights})
}

// maxRefusals is the number of attempts at a step, a poll interval apart.
const maxRefusals = 30

// repeatStep runs a step, and again after a refusal that passes by itself.
func (u *Uninstaller) repeatStep(ctx context.Context, s step) error {
	ticker := time.NewTicker(u.PollInterval)
	defer ticker.Stop()
	for attempt := 1; ; attempt++ {
		err := u.runStep(ctx, s)
		if err == nil || !passes(err) || attempt == maxRefusals {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// passes reports whether a refused write may succeed later: another program changed the object meanwhile, or the API server
// still enforces an admission policy of Sluice that was deleted before, which it does for about a second.
func passes(err error) bool {
	return apierrors.IsConflict(err) ||
		(apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'sluice-")
}

func (u *Uninstaller) runStep(ctx context.Context, s step) error {
	actions, err := s.find(ctx)
	if err != nil {
		return err
	}
	if len(actions) > 0 {
		fmt.Fprintf(u.Out, "%s:\n", s.title)
	}
	for _, a := range actions {
		fmt.Fprintf(u.Out, "  %s\n", a.what)
		if u.DryRun {
			continue
		}
		if err := a.do(ctx); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("%s: %w", a.what, err)
		}
	}
	if s.wait == nil || u.DryRun {
		return nil
	}
	return s.wait(ctx)
}

// waitFor polls until done returns no reason to wait.
func (u *Uninstaller) waitFor(ctx context.Context, done func(context.Context) (waiting string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	ticker := time.NewTicker(u.PollInterval)
	defer ticker.Stop()
	for {
		waiting, err := done(ctx)
		if err != nil || waiting == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still waiting for %s after %s; this command can be run again", waiting, u.Timeout)
		case <-ticker.C:
		}
	}
}

// pageSize is the number of objects in one list request.
const pageSize = 500

// list calls visit with each object of a kind, and does nothing if the kind is not installed.
func (u *Uninstaller) list(ctx context.Context, kind schema.GroupKind, visit func(*unstructured.Unstructured), options ...client.ListOption) error {
	mapping, err := u.Mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the kind %s: %w", kind, err)
	}
	for next := ""; ; {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
		err := u.Client.List(ctx, page, append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, options...)...)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", kind, err)
		}
		for i := range page.Items {
			visit(&page.Items[i])
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// managedByLifecycle selects what lifecycle renders.
var managedByLifecycle = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}

// remove returns the deletion of an object.
func (u *Uninstaller) remove(object *unstructured.Unstructured) action {
	return action{"delete " + describe(object), func(ctx context.Context) error {
		return u.Client.Delete(ctx, object, client.PropagationPolicy("Background"))
	}}
}

// describe returns the kind and name of an object.
func describe(object *unstructured.Unstructured) string {
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return object.GetKind() + " " + name
}
