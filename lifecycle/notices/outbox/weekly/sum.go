// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package weekly

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notices/message"
)

// sum is what a department's week was: which of its workloads were stopped, what waits
// for a decision, which projects end; and how much its projects used in the month.
func (r *Reconciler) sum(ctx context.Context, department *v1alpha1.Department, w week, now time.Time) (map[string]string, error) {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: department.Name}); err != nil {
		return nil, fmt.Errorf("listing the projects of department %s: %w", department.Name, err)
	}
	var rows []line
	var stopped, idle, waiting int
	var used, before int64
	m := monthOf(w, now, w.zone)
	for i := range projects.Items {
		project := &projects.Items[i]
		l := line{Week: message.Week{Project: project.Name}}
		var err error
		if l.used, err = r.used(ctx, project.Name, m.name); err != nil {
			return nil, err
		}
		last, err := r.used(ctx, project.Name, m.before)
		if err != nil {
			return nil, err
		}
		l.GPUHours = hours(l.used)
		used, before = used+l.used, before+last
		if end := project.Status.ExpiresAt; end != nil {
			l.ExpiresAt = end.UTC().Format(time.RFC3339)
		}
		var clocks v1alpha1.WorkloadClockList
		if err := r.Client.List(ctx, &clocks, client.InNamespace(project.NamespaceName()), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing the clocks of project %s: %w", project.Name, err)
		}
		for _, c := range clocks.Items {
			stop := c.Status.Stopped
			if stop == nil || stop.At.Time.Before(w.from) || !stop.At.Time.Before(w.to) {
				continue
			}
			l.Stopped++
			if stop.Reason == v1alpha1.EndIdle {
				idle++
			}
		}
		stopped += l.Stopped
		open, err := r.open(ctx, project)
		if err != nil {
			return nil, err
		}
		waiting += open
		rows = append(rows, l)
	}
	slices.SortFunc(rows, func(a, b line) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(b.Stopped, a.Stopped), soonest(a.ExpiresAt, b.ExpiresAt), strings.Compare(a.Project, b.Project))
	})
	var weeks []message.Week
	for _, l := range rows[:min(len(rows), mostRows)] {
		weeks = append(weeks, l.Week)
	}
	inputs := m.inputs(used, before)
	maps.Copy(inputs, map[string]string{
		message.InputDepartment: department.Name,
		message.InputFrom:       w.from.UTC().Format(time.RFC3339), message.InputTo: w.to.UTC().Format(time.RFC3339),
		message.InputStopped: strconv.Itoa(stopped), message.InputStoppedIdle: strconv.Itoa(idle), message.InputWaiting: strconv.Itoa(waiting),
		message.InputProjects: message.Weeks(weeks),
	})
	return inputs, nil
}

// line is a project's line, and what it used, in thousandths of a GPU hour.
type line struct {
	message.Week
	used int64
}

// mostRows is how many projects are recorded: more are in no mail.
const mostRows = 200

// open is how many extensions of a project wait for somebody to decide.
func (r *Reconciler) open(ctx context.Context, project *v1alpha1.Project) (open int, err error) {
	var extensions v1alpha1.ExtensionList
	if err := r.Client.List(ctx, &extensions, client.InNamespace(project.NamespaceName()), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the extensions of project %s: %w", project.Name, err)
	}
	for _, e := range extensions.Items {
		if e.Status.Decision == "" {
			open++
		}
	}
	return open, nil
}

// soonest orders by ends, of which each may be none.
func soonest(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return 1
	case b == "":
		return -1
	}
	return strings.Compare(a, b)
}
