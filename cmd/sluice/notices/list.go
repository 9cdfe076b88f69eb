// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notices/outbox"
)

// page is how many Notices are asked for at once.
const page = 500

// Filter says which Notices are meant; empty fields mean any.
type Filter struct {
	// Project is a project's name; a digest counts if it carries something of it.
	Project string
	// Recipient is an address, in upper or lower case.
	Recipient string
	// Phase is where they are.
	Phase v1alpha1.NoticePhase
}

// phases are those that there are.
var phases = []v1alpha1.NoticePhase{
	v1alpha1.NoticePending, v1alpha1.NoticeSending, v1alpha1.NoticeSent, v1alpha1.NoticeFailed, v1alpha1.NoticeSuperseded,
}

// ParsePhase reads a phase, in upper or lower case; empty for any.
func ParsePhase(text string) (v1alpha1.NoticePhase, error) {
	if text == "" {
		return "", nil
	}
	for _, p := range phases {
		if strings.EqualFold(text, string(p)) {
			return p, nil
		}
	}
	return "", fmt.Errorf("%q: want Pending, Sending, Sent, Failed or Superseded", text)
}

// List reads the Notices that are meant, by when they are due.
func List(ctx context.Context, c client.Reader, filter Filter) ([]Row, error) {
	all, err := read(ctx, c)
	if err != nil {
		return nil, err
	}
	byName := map[string]*v1alpha1.Notice{}
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	rows := []Row{}
	for i := range all {
		if filter.means(&all[i], byName) {
			rows = append(rows, RowOf(&all[i]))
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Name, b.Name)) })
	return rows, nil
}

func read(ctx context.Context, c client.Reader) (all []v1alpha1.Notice, err error) {
	for next := ""; ; {
		list := v1alpha1.NoticeList{}
		if err := c.List(ctx, &list, client.Limit(page), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("reading notices: %w%s", err, whoMay(err, "get and list notices"))
		}
		all = append(all, list.Items...)
		if next = list.Continue; next == "" {
			return all, nil
		}
	}
}

func (f Filter) means(n *v1alpha1.Notice, byName map[string]*v1alpha1.Notice) bool {
	if f.Phase != "" && phaseOf(n) != f.Phase || f.Recipient != "" && !strings.EqualFold(string(n.Spec.Recipient.Email), f.Recipient) {
		return false
	}
	if f.Project == "" || projectOf(n) == f.Project {
		return true
	}
	return slices.ContainsFunc(outbox.Carried(n), func(name string) bool {
		carried := byName[name]
		return carried != nil && projectOf(carried) == f.Project
	})
}

// whoMay says whose business it is.
func whoMay(err error, what string) string {
	if apierrors.IsForbidden(err) {
		return "; this is for administrators of the cluster and for who has the role sluice:mail-administrator, who may " + what
	}
	return ""
}
