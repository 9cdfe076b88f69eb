// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// movable returns a cluster with three projects of h2-students and one of h2-research. It refuses to move a project for
// which refuses returns true.
func movable(t *testing.T, refuses func(name, to string, dryRun bool) bool) client.WithWatch {
	t.Helper()
	students, research := &v1alpha1.Department{}, &v1alpha1.Department{}
	students.Name, research.Name = "h2-students", "h2-research"
	students.Spec = v1alpha1.DepartmentSpec{
		DisplayName: "Students", Contacts: []v1alpha1.Contact{{Name: "Office", Email: "office@example.org"}},
		NodePools: []v1alpha1.PoolQuota{{Name: "dgx"}},
		Projects:  v1alpha1.ProjectTerms{Validity: ptr.To(period.MustParsePeriod("P6M")), AtExpiry: v1alpha1.ExpiryExpire},
		Members:   []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: "dean", Role: v1alpha1.RoleDepartmentAdministrator}},
	}
	research.Spec = *students.Spec.DeepCopy()
	research.Spec.DisplayName, research.Spec.Members = "Research", nil
	research.Spec.Projects = v1alpha1.ProjectTerms{Validity: ptr.To(period.MustParsePeriod("P1Y")), AtExpiry: v1alpha1.ExpiryConfirm}
	objects := []client.Object{students, research}
	for name, department := range map[string]string{"a": "h2-students", "b": "h2-students", "c": "h2-students", "d": "h2-research"} {
		project := newProject(name, department, v1alpha1.ProjectStatus{})
		objects = append(objects, &project)
	}
	return newFakeClient(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			dryRun := len((&client.PatchOptions{}).ApplyOptions(options).DryRun) > 0
			if project := object.(*v1alpha1.Project); refuses(project.Name, project.Spec.Department, dryRun) {
				return forbiddenError()
			}
			return c.Patch(ctx, object, patch, options...)
		},
	}, objects...)
}

// A move leaves no project half way: it moves all projects, or none.
func TestMoveProjects(t *testing.T) {
	tests := map[string]struct {
		refuses func(name, to string, dryRun bool) bool
		names   []string
		dryRun  bool
		want    string // the projects of h2-research
		prints  string
		err     string
	}{
		"all":       {want: "a b c d", prints: "a         moved\n"},
		"one":       {names: []string{"b"}, want: "b d"},
		"a dry run": {dryRun: true, want: "d", prints: "b         can be moved\n"},
		"a dry run that is refused": {
			refuses: func(name, _ string, _ bool) bool { return name == "b" }, dryRun: true, want: "d",
			prints: "b         refused: things is forbidden: not you\n", err: "1 of 3 projects cannot be moved",
		},
		"refused ahead": {
			refuses: func(name, _ string, dryRun bool) bool { return name == "b" && dryRun }, want: "d",
			prints: "a         not moved\n", err: "1 of 3 projects cannot be moved, and none was moved",
		},
		"refused by the sum of the quotas": {
			refuses: func(name, to string, dryRun bool) bool { return name == "c" && to == "h2-research" && !dryRun }, want: "d",
			prints: "a         not moved\n", err: "move project c: things is forbidden: not you; no project was moved",
		},
		"refused on the way back": {
			refuses: func(name, to string, dryRun bool) bool {
				return !dryRun && (name == "c" || name == "a" && to == "h2-students")
			},
			want: "a d", prints: "a         moved\n", err: "move project a back to department h2-students",
		},
		"another department's": {names: []string{"d"}, want: "d", err: "project d is in department h2-research, not in h2-students"},
		"an unknown project":   {names: []string{"x"}, want: "d", err: "get project x"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.refuses == nil {
				tc.refuses = func(string, string, bool) bool { return false }
			}
			c := movable(t, tc.refuses)
			move := &projectMove{From: "h2-students", To: "h2-research", DryRun: tc.dryRun}
			err := move.run(t.Context(), c, tc.names)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("err = %v, want it to contain %q", err, tc.err)
			}
			var out bytes.Buffer
			if err := move.writeText(&out); err != nil || !strings.Contains(out.String(), tc.prints) {
				t.Errorf("printed %q, %v, want it to contain %q", out.String(), err, tc.prints)
			}
			var list v1alpha1.ProjectList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range list.Items {
				if list.Items[i].Spec.Department == "h2-research" {
					got = append(got, list.Items[i].Name)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("department h2-research has %v, want %s", got, tc.want)
			}
		})
	}
}

func TestMoveShowsWhatChanges(t *testing.T) {
	move := &projectMove{From: "h2-students", To: "h2-research", DryRun: true}
	if err := move.run(t.Context(), movable(t, func(name, _ string, _ bool) bool { return name == "b" }), nil); err == nil {
		t.Error("no error")
	}
	var out bytes.Buffer
	if err := move.writeText(&out); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out.String(), "projects/move.txt")
	for args, want := range map[string]string{
		"projects move --from a":        "--from and --to: required",
		"projects move --from a --to a": "a is the department of the projects",
	} {
		if _, err := runCommand(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sluice %s: err = %v, want it to contain %q", args, err, want)
		}
	}
}
