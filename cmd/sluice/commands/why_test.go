// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/explanation"
)

// splitShell splits a command line as a shell does, for words with quotes and without other syntax.
func splitShell(t *testing.T, line string) (words []string) {
	t.Helper()
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, inWord = r, true
		case unicode.IsSpace(r):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		case strings.ContainsRune("$`;&<>(){}*?", r):
			t.Errorf("%q has the shell's %q without quotes", line, r)
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		t.Errorf("%q has an open quote", line)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}

// kubectlCommand matches the commands of kubectl that answers name, all of which an l2-researcher may run.
var kubectlCommand = regexp.MustCompile(`^kubectl (create -n \S+ (--dry-run=server )?-f FILE|` +
	`describe [a-z0-9.]+/?\s?\S+ -n \S+|get [a-z0-9.-]+( \S+)? -n \S+)$`)

// adviceLine matches a command in a line of output: alone, or after a colon.
var adviceLine = regexp.MustCompile(`(?m)(?:^    |: )((?:sluice|kubectl) .*)$`)

// Each command of each answer and of whoami exists: those of sluice parse, with their flags.
func TestCommandsOfAnswersParse(t *testing.T) {
	files, err := filepath.Glob("../explanation/testdata/*.txt")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d golden files: %v", len(files), err)
	}
	programs := map[string]int{}
	for _, file := range append(files, "testdata/whoami/member.txt") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range adviceLine.FindAllStringSubmatch(string(text), -1) {
			words := splitShell(t, found[1])
			programs[words[0]]++
			if words[0] == "sluice" {
				checkAdvice(t, PrepareArguments(words[1:]))
			} else if !kubectlCommand.MatchString(found[1]) {
				t.Errorf("%s: unexpected command %s", file, found[1])
			}
		}
	}
	if programs["sluice"] < 30 || programs["kubectl"] < 20 {
		t.Errorf("only %v commands", programs)
	}
}

// owned sets the controller of an object.
func owned(object, owner client.Object, kind string) {
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true),
	}})
}

func newMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "thesis", Name: name, UID: types.UID(name)}
}

// whyObjects are a Deployment with a ReplicaSet and a pod, and a Job of the same name as another Deployment.
func whyObjects() []client.Object {
	deployment := &appsv1.Deployment{ObjectMeta: newMeta("web")}
	replicaSet := &appsv1.ReplicaSet{ObjectMeta: newMeta("web-1")}
	owned(replicaSet, deployment, "Deployment")
	pod := &corev1.Pod{ObjectMeta: newMeta("web-1-x"), Status: corev1.PodStatus{Phase: corev1.PodPending}}
	owned(pod, replicaSet, "ReplicaSet")
	double, job := &appsv1.Deployment{ObjectMeta: newMeta("double")}, &batchv1.Job{ObjectMeta: newMeta("double")}
	job.UID = "other"
	eventOn := func(name string, uid types.UID) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: name}, Reason: "Scaled",
			InvolvedObject: corev1.ObjectReference{Kind: "X", Name: "x", UID: uid},
		}
	}
	gone := newClock("thesis", "Pod", "notebook", v1alpha1.WorkloadClockStatus{State: v1alpha1.ClockStateDeleted})
	gone.Name = gone.Spec.Root.ClockName()
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "thesis", Labels: map[string]string{v1alpha1.LabelProject: "thesis-mueller"}}},
		&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}},
		deployment, replicaSet, pod, double, job, &gone,
		eventOn("on-replica-set", "web-1"), eventOn("on-pod", "web-1-x"), eventOn("of-another", "double"),
		&corev1.ResourceQuota{ObjectMeta: newMeta("sluice-gpu")},
		&v1alpha1.Extension{ObjectMeta: newMeta("more"), Spec: v1alpha1.ExtensionSpec{Target: v1alpha1.ExtensionTarget{Kind: "Deployment", Name: "web"}}},
	}
}

func readFacts(t *testing.T, c client.Client, text string) (explanation.Facts, error) {
	t.Helper()
	reader := workloadFactsReader{Client: c, facts: explanation.Facts{Namespace: "thesis"}}
	return reader.read(t.Context(), text)
}

func TestWhyFacts(t *testing.T) {
	c := newFakeClient(t, interceptor.Funcs{}, whyObjects()...)
	// The workload is found by its own name, and by those of its parts.
	for _, name := range []string{"web", "web-1", "web-1-x", "deployments.v1.apps/web", "pods/web-1-x"} {
		facts, err := readFacts(t, c, name)
		if err != nil {
			t.Fatal(name, err)
		}
		var events []string
		for i := range facts.Events {
			events = append(events, facts.Events[i].Name)
		}
		slices.Sort(events)
		got := []any{facts.Workload.Kind, facts.Workload.Name, facts.ProjectName, facts.Project != nil, len(facts.Pods), events, len(facts.Quotas), len(facts.Extensions), len(facts.Unread)}
		if diff := cmp.Diff([]any{"Deployment", "web", "thesis-mueller", true, 1, []string{"on-pod", "on-replica-set"}, 1, 1, 0}, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	if facts, err := readFacts(t, c, "notebook"); err != nil || facts.Clock == nil || facts.Workload.Kind != "Pod" {
		t.Errorf("a deleted pod is found by its clock: %+v, %v", facts.Workload, err)
	}
	if facts, err := readFacts(t, c, "nothing"); err != nil || explanation.Explain(facts).State != explanation.StateMissing ||
		cmp.Diff([]string{"double", "web"}, facts.Others) != "" {
		t.Errorf("what does not exist is missing beside %v: %v", facts.Others, err)
	}
	for text, want := range map[string]string{
		"double":              "name one of deployment/double, job/double",
		"project/thesis":      "sluice whoami",
		"nonsense/web":        `kind "nonsense"`,
		"job/":                "want NAME or KIND/NAME",
		"deployment/web/more": "want NAME or KIND/NAME",
	} {
		if _, err := readFacts(t, c, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// The other pods of the namespace are read only for a pod that waits because of anti-affinity.
func TestWhyReadsNeighbors(t *testing.T) {
	for message, want := range map[string]int{
		"0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.": 3, // and that of a Deployment
		"0/2 nodes are available: 2 Insufficient nvidia.com/gpu.":                  0,
	} {
		waiting, other := &corev1.Pod{ObjectMeta: newMeta("waiting")}, &corev1.Pod{ObjectMeta: newMeta("other")}
		waiting.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}}
		facts, err := readFacts(t, newFakeClient(t, interceptor.Funcs{}, append(whyObjects(), waiting, other)...), "pod/waiting")
		if err != nil || len(facts.Neighbors) != want {
			t.Errorf("%s: %d pods, %v", message, len(facts.Neighbors), err)
		}
	}
}

// A user who may read little gets an answer that says what it lacks.
func TestWhyWithoutRights(t *testing.T) {
	refuse := func(object any) error {
		switch object.(type) {
		case *corev1.EventList, *corev1.ResourceQuotaList, *v1alpha1.Project:
			return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", nil)
		}
		return nil
	}
	c := newFakeClient(t, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := refuse(list); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if err := refuse(object); err != nil {
				return err
			}
			return c.Get(ctx, key, object, options...)
		},
	}, whyObjects()...)
	facts, err := readFacts(t, c, "web")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"the project: forbidden", "events: forbidden", "quotas: forbidden"}
	if diff := cmp.Diff(want, explanation.Explain(facts).Unread); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
