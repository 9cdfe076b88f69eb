// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/facts"
	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/filled"
)

// bench has the same policies twice: the other in another order, and it remembers
// no answers. Both must answer the same.
type bench struct{ set, other *engine.Set }

// seated compiles the built-in policies, with other parameters than are shipped for
// those that are named, and more policies.
func seated(tb testing.TB, parameters map[string]string, more ...engine.Source) bench {
	tb.Helper()
	sources := append(policies.BuiltIn(), more...)
	for i := range sources {
		if other, ok := parameters[sources[i].Name]; ok {
			sources[i].Parameters = []byte(other)
		}
	}
	compile := func(remember int) *engine.Set {
		set, reports, err := engine.Compile(sources, engine.Options{
			Libraries: policies.Libraries(), Remember: remember,
			Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}, // the fuzzer is not alone on the machine
		})
		if err != nil {
			tb.Fatal(err)
		}
		for _, report := range reports {
			for _, problem := range report.Problems {
				tb.Fatal(problem)
			}
		}
		return set
	}
	set := compile(0)
	slices.Reverse(sources)
	return bench{set, compile(-1)}
}

// court is where pods are judged, for one project.
type court struct {
	bench
	project facts.Project
	pools   []facts.Pool
	// user makes the pods; anna where it is empty.
	user string
}

// opinion is what the policies say of one pod.
type opinion struct {
	pod map[string]any
	// out is why the pod is not let in, whatever is done.
	out      string
	refusals map[string][]string
	intents  map[string]intent.Intent
}

// ask asks a set about a pod. An error is a fault of the policies.
func (c *court) ask(ctx context.Context, set *engine.Set, pod map[string]any) (*opinion, error) {
	o := &opinion{pod: pod, refusals: map[string][]string{}, intents: map[string]intent.Intent{}}
	var object corev1.Pod
	if err := json.Unmarshal([]byte(written(pod)), &object); err != nil {
		return nil, err
	}
	request, fault := parsed(&object)
	if o.out = fault; fault != "" {
		return o, nil
	}
	in, err := c.question(pod, &request)
	if err != nil {
		return nil, err
	}
	if request.Type == "" {
		if request.Type, err = set.Type(ctx, in); err != nil {
			return nil, err
		}
		if in.Workload, err = engine.FromGo(request); err != nil {
			return nil, err
		}
	}
	outcome, err := set.Evaluate(ctx, in)
	if err != nil {
		return nil, err
	}
	for _, failure := range outcome.Failures {
		return nil, fmt.Errorf("%s failed: %w", failure.Policy, failure.Err)
	}
	for _, denial := range outcome.Denials {
		o.refusals[denial.Policy] = append(o.refusals[denial.Policy], denial.Message)
	}
	for _, wants := range outcome.Intents {
		o.intents[wants.Policy] = wants
	}
	return o, nil
}

// parsed is what a pod asks for, or what is wrong with that.
func parsed(pod *corev1.Pod) (request workload.Request, fault string) {
	request, err := workload.ParsePod(pod)
	if err != nil {
		fault = err.Error()
	}
	return request, fault
}

func (c *court) question(pod map[string]any, request *workload.Request) (engine.Input, error) {
	user := c.user
	if user == "" {
		user = "anna"
	}
	in := engine.Input{
		Subject: engine.Subject{Operation: v1alpha1.OperationCreate, Kind: "Pod", Department: c.project.Department, Project: c.project.Name},
		Now:     time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC),
	}
	for _, part := range []struct {
		document *engine.Document
		value    any
	}{
		{&in.Review, map[string]any{"operation": "CREATE", "userInfo": map[string]any{"username": user}}},
		{&in.Object, pod},
		{&in.Workload, request},
		{&in.Project, c.project},
		{&in.NodePools, c.pools},
	} {
		var err error
		if *part.document, err = engine.FromGo(part.value); err != nil {
			return in, err
		}
	}
	return in, nil
}

// isRefused is the outcome of a pod that is not let in, in the place of the pod.
const isRefused = "refused"

// apply does what the named policies want of the pod, all at once; ok is false
// where it is refused. An error is a fault of the policies.
func (o *opinion) apply(names ...string) (result merge.Result, ok bool, err error) {
	var intents []intent.Intent
	for _, name := range names {
		if o.out != "" || len(o.refusals[name]) > 0 {
			return result, false, nil
		}
		if wants, ok := o.intents[name]; ok {
			intents = append(intents, wants)
		}
	}
	result, err = merge.Apply(o.pod, intents, filled.Cluster{})
	if podsFault(err) {
		return result, false, nil
	}
	return result, err == nil, err
}

// podsFault tells whether the pod, and no policy, is the cause of an error.
func podsFault(err error) bool {
	var malformed *merge.ObjectError
	return errors.As(err, &malformed)
}

// outcome is the pod as the named policies make it, and how they do.
func (o *opinion) outcome(names ...string) (pod, patch string, err error) {
	result, ok, err := o.apply(names...)
	if !ok || err != nil {
		return isRefused, "", err
	}
	raw, err := result.Patch()
	return written(result.Object), string(raw), err
}

// after is what the policies say of what the named ones, at once, made of a pod.
func (c *court) after(ctx context.Context, before *opinion, names ...string) (*opinion, error) {
	silent := func(name string) bool {
		_, wants := before.intents[name]
		return !wants && len(before.refusals[name]) == 0
	}
	if !slices.ContainsFunc(names, func(name string) bool { return !silent(name) }) {
		return before, nil
	}
	outcome, _, err := before.outcome(names...)
	if err != nil {
		return nil, err
	}
	if outcome == isRefused {
		return &opinion{pod: before.pod, out: fmt.Sprint(names, ": ", before.out, before.refusals)}, nil
	}
	return c.again(ctx, outcome)
}

// again is what the policies say of an outcome.
func (c *court) again(ctx context.Context, outcome string) (*opinion, error) {
	pod, err := read(outcome)
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, c.set, pod)
}

// written is a pod as JSON; maps are written in the order of their keys.
func written(pod map[string]any) string {
	raw, err := json.Marshal(pod)
	if err != nil {
		return err.Error() // which is no JSON, and found out when it is read
	}
	return string(raw)
}

// read is a pod as it is decoded from JSON.
func read(pod string) (object map[string]any, err error) {
	err = utiljson.Unmarshal([]byte(pod), &object)
	return object, err
}
