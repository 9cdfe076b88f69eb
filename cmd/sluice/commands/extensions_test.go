// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/workloads"
)

var (
	extensionDay = period.MustParseDuration("24h")
	extensionEnd = time.Date(2026, 11, 23, 15, 5, 0, 0, time.UTC)
)

func jobTarget(name string) resolvedTarget {
	return resolvedTarget{Namespace: "thesis", ExtensionTarget: v1alpha1.ExtensionTarget{APIVersion: "batch/v1", Kind: "Job", Name: name}}
}

func projectTarget(name string) resolvedTarget {
	return resolvedTarget{
		Namespace:       "thesis",
		ExtensionTarget: v1alpha1.ExtensionTarget{APIVersion: "sluice.dev/v1alpha1", Kind: "Project", Name: name},
	}
}

func newExtensionClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	controlled := true
	objects = append(
		objects,
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: "training"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: "training-abcde", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: "Job", Name: "training", UID: "1", Controller: &controlled},
		}}},
		&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}, Spec: v1alpha1.ProjectSpec{Namespace: "thesis"}},
	)
	return newFakeClient(t, interceptor.Funcs{}, objects...)
}

func TestResolveExtensionTarget(t *testing.T) {
	c := newExtensionClient(t)
	tests := map[string]struct {
		want resolvedTarget
		err  string
	}{
		"job/training":           {want: jobTarget("training")},
		"jobs/training":          {want: jobTarget("training")},
		"Job/training":           {want: jobTarget("training")},
		"jobs.batch/training":    {want: jobTarget("training")},
		"jobs.v1.batch/training": {want: jobTarget("training")},
		"project/thesis-mueller": {err: `sluice renew project/thesis-mueller --reason "..."`},
		"job/none":               {err: "Job none not found in namespace thesis"},
		"pod/training-abcde":     {err: "extend job/training"},
		"spoon/training":         {err: `kind "spoon"`},
		"training":               {err: "want KIND/NAME"},
		"job/":                   {err: "want KIND/NAME"},
		"/training":              {err: "want KIND/NAME"},
		"job/training/x":         {err: "want KIND/NAME"},
	}
	for text, tc := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := resolveExtensionTarget(t.Context(), c, "thesis", text)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("err = %v, want it to contain %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the target differs (-want +got)\n%s", diff)
			}
		})
	}
}

func TestResolveProject(t *testing.T) {
	c := newExtensionClient(t)
	tests := map[string]string{ // the error, if any
		"project/thesis-mueller":             "",
		"projects/thesis-mueller":            "",
		"slproj/thesis-mueller":              "",
		"projects.sluice.dev/thesis-mueller": "",
		"projects.openshift.io/thesis":       "want project/NAME",
		"job/training":                       "a workload gets more time with sluice extend job/training",
		"project/none":                       "get project none",
		"thesis-mueller":                     "want KIND/NAME",
	}
	for text, want := range tests {
		got, err := resolveProject(t.Context(), c, text)
		switch {
		case want == "" && (err != nil || got != projectTarget("thesis-mueller")):
			t.Errorf("resolveProject(%q) = %v, %v", text, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("resolveProject(%q): err = %v, want it to contain %q", text, err, want)
		}
	}
}

func TestResolveExtensionTargetWithoutReadAccess(t *testing.T) {
	c := interceptor.NewClient(newExtensionClient(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbiddenError()
		},
	})
	if got, err := resolveExtensionTarget(t.Context(), c, "thesis", "job/training"); err != nil || got != jobTarget("training") {
		t.Errorf("resolveExtensionTarget = %v, %v", got, err)
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, text := range []string{"job/training", "jobs.v1.batch/x", "/", "a//b", ""} {
		f.Add(text)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	f.Fuzz(func(t *testing.T, text string) {
		resource, name, err := parseTarget(text)
		if err != nil {
			return
		}
		if resource == "" || name == "" || strings.Contains(name, "/") {
			t.Fatalf("parseTarget(%q) = %q, %q", text, resource, name)
		}
		if _, err := workloads.ResolveKind(mapper, resource); err == nil {
			t.Fatalf("%q resolves to a kind of an empty mapper", resource)
		}
	})
}

func TestNewExtension(t *testing.T) {
	tests := map[string]struct {
		target resolvedTarget
		reason string
		action v1alpha1.ExtensionAction
		err    string
	}{
		"a workload":        {target: jobTarget("x"), reason: "nearly done", action: v1alpha1.ActionExtend},
		"a project":         {target: projectTarget("p"), reason: "the defense is in June", action: v1alpha1.ActionRenew},
		"a long reason":     {target: jobTarget("x"), reason: strings.Repeat("ü", 500), action: v1alpha1.ActionExtend},
		"no reason":         {target: jobTarget("x"), err: "--reason"},
		"a blank reason":    {target: jobTarget("x"), reason: " \n", err: "--reason"},
		"too long a reason": {target: jobTarget("x"), reason: strings.Repeat("ü", 501), err: "at most 500"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := newExtension(tc.target, tc.action, tc.reason)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("err = %v, want it to contain %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Spec.Action != tc.action || got.Namespace != "thesis" || got.Spec.Target != tc.target.ExtensionTarget {
				t.Errorf("the extension is %+v in %s", got.Spec, got.Namespace)
			}
		})
	}
}

// clientWithDecision returns a cluster in which an Extension is decided at its
// second read and applied at the third.
func clientWithDecision(t *testing.T, decision v1alpha1.ExtensionDecision) client.WithWatch {
	reads := 0
	return interceptor.NewClient(newExtensionClient(t), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if err := c.Get(ctx, key, object, options...); err != nil {
				return err
			}
			extension, ok := object.(*v1alpha1.Extension)
			if !ok {
				return nil
			}
			if reads++; reads >= 2 {
				extension.Status.Decision = decision
			}
			if reads >= 3 {
				at := metav1.NewTime(extensionEnd)
				extension.Status.NewEnd = &at
			}
			return nil
		},
	})
}

func createTestExtension(t *testing.T, c client.Client, options waitOptions) *v1alpha1.Extension {
	t.Helper()
	extension, err := newExtension(jobTarget("training"), v1alpha1.ActionExtend, "nearly done")
	if err != nil {
		t.Fatal(err)
	}
	extension.Spec.By = &extensionDay
	if err := createExtension(t.Context(), c, extension, options); err != nil {
		t.Fatal(err)
	}
	return extension
}

func TestCreateExtensionWaitsForDecision(t *testing.T) {
	options := waitOptions{time.Minute, time.Millisecond}
	for decision, want := range map[v1alpha1.ExtensionDecision]string{
		v1alpha1.ExtensionApproved: "approved; Job training ends 2026-11-23 15:05 UTC",
		v1alpha1.ExtensionDenied:   "denied",
	} {
		extension := createTestExtension(t, clientWithDecision(t, decision), options)
		if got := describeExtensionOutcome(extension, time.UTC); got != want {
			t.Errorf("the outcome is %q, want %q", got, want)
		}
	}
}

// An approval alone does not complete an Extension: lifecycle applies it.
func TestCreateExtensionWaitsUntilApplied(t *testing.T) {
	extension := &v1alpha1.Extension{Status: v1alpha1.ExtensionStatus{
		Decision:   v1alpha1.ExtensionApproved,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAwaitingDecision}},
	}}
	if extensionCompleted(extension) {
		t.Error("completed before the workload has more time")
	}
	extension.Status.Conditions[0].Reason = v1alpha1.ReasonTargetNotFound
	if !extensionCompleted(extension) {
		t.Error("not completed although the workload is gone")
	}
}

func TestCreateExtensionTimesOut(t *testing.T) {
	for _, within := range []time.Duration{0, 20 * time.Millisecond} {
		extension := createTestExtension(t, newExtensionClient(t), waitOptions{within, time.Millisecond})
		if got := describeExtensionOutcome(extension, time.UTC); got != "not decided yet" || extension.Name == "" {
			t.Errorf("within %v: extension %q is %q", within, extension.Name, got)
		}
	}
}

func TestWaitForExtensionReportsErrors(t *testing.T) {
	gone := &v1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: "gone"}}
	options := waitOptions{time.Minute, time.Millisecond}
	if err := waitForExtension(t.Context(), newExtensionClient(t), gone, options); !apierrors.IsNotFound(err) {
		t.Errorf("err = %v, want not found", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newExtensionClient(t)
	pending := createTestExtension(t, c, waitOptions{})
	if err := waitForExtension(ctx, c, pending, options); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want that it was canceled", err)
	}
}

func TestDecideExtension(t *testing.T) {
	c := newExtensionClient(t)
	extension := createTestExtension(t, c, waitOptions{})
	key := client.ObjectKeyFromObject(extension)
	if _, err := decideExtension(t.Context(), c, key, v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, Message: strings.Repeat("x", 501)}); err == nil {
		t.Error("a message of 501 characters is accepted")
	}
	if _, err := decideExtension(t.Context(), c, key, v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied, Message: "others wait"}); err != nil {
		t.Fatal(err)
	}
	var now v1alpha1.Extension
	if err := c.Get(t.Context(), key, &now); err != nil {
		t.Fatal(err)
	}
	if want := (v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied, Message: "others wait"}); !cmp.Equal(want, now.Status) {
		t.Errorf("the status is %+v, want %+v; admission sets the other fields", now.Status, want)
	}
	_, err := decideExtension(t.Context(), c, key, v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved})
	if err == nil || !strings.Contains(err.Error(), "already decided") {
		t.Errorf("err = %v, want that a decision is final", err)
	}
	none := types.NamespacedName{Namespace: "thesis", Name: "none"}
	if _, err := decideExtension(t.Context(), c, none, v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved}); !apierrors.IsNotFound(err) {
		t.Errorf("err = %v, want not found", err)
	}
}

// The second of two concurrent decisions fails.
func TestDecideExtensionConflict(t *testing.T) {
	base := newExtensionClient(t)
	extension := createTestExtension(t, base, waitOptions{})
	key := client.ObjectKeyFromObject(extension)
	first := true
	c := interceptor.NewClient(base, interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			if first {
				first = false
				if _, err := decideExtension(ctx, base, key, v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied}); err != nil {
					t.Error(err)
				}
			}
			return c.SubResource(name).Patch(ctx, object, patch, options...)
		},
	})
	_, err := decideExtension(t.Context(), c, key, v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved})
	if err == nil || !strings.Contains(err.Error(), "already decided") {
		t.Errorf("err = %v, want that the extension is decided", err)
	}
}

func TestListExtensionsAndWriteTable(t *testing.T) {
	now := extensionEnd
	made := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	c := newExtensionClient(t,
		&v1alpha1.Extension{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "thesis", Name: "later", CreationTimestamp: made(5 * time.Minute),
				Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "dean"},
			},
			Spec: v1alpha1.ExtensionSpec{
				Target: projectTarget("p").ExtensionTarget,
				Action: v1alpha1.ActionRenew, OnBehalfOf: "ben@example.org",
				Reason: "line\nand \x1b[31mred",
			},
		},
		&v1alpha1.Extension{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "lab", Name: "first", CreationTimestamp: made(3 * time.Hour),
				Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "anna"},
			},
			Spec: v1alpha1.ExtensionSpec{
				Target: jobTarget("training").ExtensionTarget,
				Action: v1alpha1.ActionExtend,
				By:     &extensionDay,
				Reason: "nearly done",
			},
		},
		&v1alpha1.Extension{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "done", CreationTimestamp: made(time.Hour)},
			Spec: v1alpha1.ExtensionSpec{
				Target: jobTarget("training").ExtensionTarget,
				Action: v1alpha1.ActionExtend,
				By:     &extensionDay,
				Reason: "again",
			},
			Status: v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionDenied},
		},
	)
	table := func(namespace string, decided bool) string {
		t.Helper()
		rows, err := listExtensions(t.Context(), c, namespace, decided)
		if err != nil {
			t.Fatal(err)
		}
		return tableText(t, extensionTable(rows, namespace == "", decided, now))
	}
	want := `NAMESPACE   NAME    ACTION   TARGET         BY    REQUESTED BY               AGE   REASON
lab         first   Extend   Job/training   24h   anna                       3h    nearly done
thesis      later   Renew    Project/p      -     dean for ben@example.org   5m    line\nand \x1b[31mred
`
	if diff := cmp.Diff(want, table("", false)); diff != "" {
		t.Errorf("pending extensions differ (-want +got)\n%s", diff)
	}
	want = `NAME    ACTION   TARGET         BY    REQUESTED BY   AGE   DECISION   REASON
first   Extend   Job/training   24h   anna           3h    -          nearly done
done    Extend   Job/training   24h   -              1h    Denied     again
`
	if diff := cmp.Diff(want, table("lab", true)); diff != "" {
		t.Errorf("all extensions differ (-want +got)\n%s", diff)
	}
}

func TestDescribeExtension(t *testing.T) {
	at := metav1.NewTime(extensionEnd)
	extension := &v1alpha1.Extension{Spec: v1alpha1.ExtensionSpec{Target: jobTarget("training").ExtensionTarget, By: &extensionDay}}
	awaiting := metav1.Condition{
		Type:    v1alpha1.ConditionApplied,
		Status:  metav1.ConditionFalse,
		Reason:  v1alpha1.ReasonAwaitingDecision,
		Message: "editor decides",
	}
	for want, status := range map[string]v1alpha1.ExtensionStatus{
		"not decided yet":                 {},
		"not decided yet: editor decides": {Conditions: []metav1.Condition{awaiting}},
		"approved by c":                   {Decision: v1alpha1.ExtensionApproved, DecidedBy: "c", Conditions: []metav1.Condition{awaiting}},
		`denied by b\x1b[1m: no`: {
			Decision: v1alpha1.ExtensionDenied, DecidedBy: "b\x1b[1m", Message: "no",
		},
		"approved; Job training ends 2026-11-23 15:05 UTC": {Decision: v1alpha1.ExtensionApproved, NewEnd: &at},
		"approved by b; the Job is gone": {
			Decision: v1alpha1.ExtensionApproved, DecidedBy: "b",
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Message: "the Job is gone"}},
		},
	} {
		extension.Status = status
		if got := describeExtensionOutcome(extension, time.UTC); got != want {
			t.Errorf("describeExtensionOutcome = %q, want %q", got, want)
		}
	}
	renewal, deletion := extension.DeepCopy(), extension.DeepCopy()
	for want, end := range map[string]time.Time{
		"approved; Project p is valid until 2027-05-31 24:00 CEST": time.Date(2027, 5, 31, 22, 0, 0, 0, time.UTC),
		"approved; Project p is valid until 2027-06-01 06:00 CEST": time.Date(2027, 6, 1, 4, 0, 0, 0, time.UTC),
	} {
		e := &v1alpha1.Extension{Spec: v1alpha1.ExtensionSpec{Target: projectTarget("p").ExtensionTarget, Action: v1alpha1.ActionRenew}}
		e.Status = v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, NewEnd: &metav1.Time{Time: end}}
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		if got := describeExtensionOutcome(e, berlin); got != want {
			t.Errorf("describeExtensionOutcome = %q, want %q", got, want)
		}
	}
	renewal.Spec = v1alpha1.ExtensionSpec{Target: projectTarget("p").ExtensionTarget, Action: v1alpha1.ActionRenew}
	deletion.Spec = v1alpha1.ExtensionSpec{Target: projectTarget("p").ExtensionTarget, Action: v1alpha1.ActionDelete}
	for want, e := range map[string]*v1alpha1.Extension{
		"24h more for Job training": extension, "the renewal of Project p": renewal, "the deletion of Project p": deletion,
	} {
		if got := describeExtensionRequest(e); got != want {
			t.Errorf("describeExtensionRequest = %q, want %q", got, want)
		}
	}
}
