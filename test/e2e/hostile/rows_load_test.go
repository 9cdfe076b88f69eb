// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// The requests of one project keep the controllers that create the pods of another from nothing.
var _ = attacks(row{
	class: load, name: "64 large pods at once, and 20 Jobs", roles: []role{l2}, fresh: true, alone: true,
	attack: really(do("64 large pods at once, and 20 Jobs", flood)), harmless: jobsOfOthersStart,
	uncontrolled: "the time of a Job beside it is compared with the time without it",
})

// expensiveRego is a policy as people write it, whose time grows with the square of the variables.
const expensiveRego = `package twice

deny contains {"msg": sprintf("container %s: variable %s occurs twice", [c.name, a.name]), "fix": "remove one"} if {
	some c in input.object.spec.containers
	some i, a in c.env
	some j, b in c.env
	i < j
	a.name == b.name
}
`

// jobAlone is how long the pod of a Job takes without the flood.
var jobAlone time.Duration

// flood sends large pods, which take a policy its whole time, until the test ends, and starts Jobs beside.
func flood(a *attacker) (*unstructured.Unstructured, error) {
	var err error
	if jobAlone, err = a.as(neighbor).timeJob("before-" + a.intruder()); err != nil {
		return nil, err
	}
	policy := &v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: "twice"},
		Spec:       v1alpha1.PolicySpec{Enforcement: v1alpha1.EnforcementDeny, Rego: expensiveRego},
	}
	if err := a.world.Admin.Create(a.t.Context(), policy); err != nil {
		return nil, err
	}
	a.cleanUp(policy)
	var jobs []*unstructured.Unstructured
	for i := range 20 {
		job, err := a.ordinary("Job", fmt.Sprint(a.intruder(), "-", i), `{spec: {suspend: true, parallelism: 20, completions: 20, template: {spec: {nodeSelector: {nowhere: "yes"}}}}}`)
		if err != nil {
			return nil, err
		}
		if err := a.create(job); err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	var containers []string
	for c := range 2 {
		var variables []string
		for i := range 900 {
			variables = append(variables, fmt.Sprintf("{name: V_%d_%d}", c, i))
		}
		containers = append(containers, fmt.Sprintf("{name: c%d, image: a, env: [%s]}", c, strings.Join(variables, ",")))
	}
	large, err := a.ordinary("Pod", a.intruder(), "{spec: {containers: ["+strings.Join(containers, ",")+"]}}")
	if err != nil {
		return nil, err
	}
	large.SetNamespace(a.namespace)
	a.eventually(func() error {
		if err := a.client.Create(a.t.Context(), large.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "too large: the policy twice") {
			return fmt.Errorf("a large pod: %w", err)
		}
		return nil
	})
	ctx, end := context.WithCancel(context.Background()) // the cleanup ends it before the objects are deleted
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = a.client.Create(ctx, large.DeepCopy(), client.DryRunAll) // refused, for one reason or another
			}
		})
	}
	a.t.Cleanup(func() { end(); all.Wait() })
	for _, job := range jobs {
		if err := a.client.Patch(a.t.Context(), job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`))); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// jobsOfOthersStart returns an error if the pods of Jobs of another project take longer than two seconds, or on a slow machine than ten
// times as long as without the flood. It is the mean of several, since the flood takes the API server's time as well.
func jobsOfOthersStart(a *attacker, _ *unstructured.Unstructured) error {
	var (
		all []time.Duration
		sum time.Duration
	)
	for i := range 10 {
		took, err := a.as(neighbor).timeJob(fmt.Sprint("beside-", a.intruder(), "-", i))
		if err != nil {
			return err
		}
		all, sum = append(all, took), sum+took
	}
	a.t.Logf("Jobs of another project have their pods after %s, and after %s without the flood", all, jobAlone)
	if mean := sum / time.Duration(len(all)); mean > max(2*time.Second, 10*jobAlone) {
		return fmt.Errorf("a Job of another project has its pod after %s, and after %s without the flood", mean, jobAlone)
	}
	return nil
}

// timeJob returns how long a new Job takes until it has its pod.
func (a *attacker) timeJob(name string) (time.Duration, error) {
	a.dry = false
	job, err := a.ordinary("Job", name, `{spec: {template: {spec: {nodeSelector: {nowhere: "yes"}}}}}`)
	if err != nil {
		return 0, err
	}
	if err := a.create(job); err != nil {
		return 0, err
	}
	start := time.Now()
	a.eventually(func() error {
		var pods corev1.PodList
		if err := a.client.List(a.t.Context(), &pods, client.InNamespace(a.namespace), client.MatchingLabels{"job-name": name}); err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return fmt.Errorf("Job %s has no pod", name)
		}
		return nil
	})
	return time.Since(start), nil
}
