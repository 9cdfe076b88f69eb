// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/clocks"
)

// spare shows that nothing ends where a department only looks, and where a project
// is exempt or held; and that work whose project is no longer held has the longest
// lead left.
func (c *timed) spare(t *testing.T) {
	c.make(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "looking"},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{quota("dgx", "1", "1")},
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {
				MaxRuntime: ptr.To(period.MustParseDuration("48h")), DryRun: ptr.To(true),
			}},
		},
	})
	c.governed(t, "looking", "looked-at", quota("dgx", "0", "1"))
	c.governed(t, "h2-students", "held", quota("dgx-mig", "500m", "1"))
	c.governed(t, "h2-students", "exempt", quota("dgx-mig", "500m", "1"))
	except := &v1alpha1.Exception{Reason: "the defence is next week"}
	c.change(t, "held", func(p *v1alpha1.Project) { p.Spec.Hold = except })
	c.change(t, "exempt", func(p *v1alpha1.Project) { p.Spec.Exempt = except })
	seen, held, exempt := aJob("looked-at", "seen", v1alpha1.ResourceNVIDIAGPU), aJob("held", "held", slice), aJob("exempt", "exempt", slice)
	all := []workload{seen, held, exempt}
	c.begin(t, all...)

	c.step(t, 50*time.Hour)
	would := func(s *v1alpha1.WorkloadClockStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionDryRun)
	}
	c.awaitClock(t, seen, "it would be stopped", would)
	c.running(t, "after its limit", all...)
	c.step(t, 7*24*time.Hour)
	c.running(t, "a week after its limit", all...)
	for _, w := range all {
		if s := c.status(t, w); s.Deadline != nil || s.Local.Ends != "never" || len(c.told(t, w.GetNamespace())) > 0 {
			t.Errorf("%s ends %s, and its people were told of %v", w.GetName(), s.Local.Ends, c.told(t, w.GetNamespace()))
		}
	}

	c.change(t, "held", func(p *v1alpha1.Project) { p.Spec.Hold = nil })
	s := c.awaitClock(t, held, "it ends", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Deadline != nil })
	if left := s.Deadline.At.Sub(s.Deadline.AnnouncedAt.Time); left != leads[0] {
		t.Errorf("what is held no longer has %s left, want %s", left, leads[0])
	}
	c.running(t, "when it is held no longer", all...)
	c.stepTo(t, s.Deadline.At.Add(-20*time.Minute))
	c.awaitClock(t, held, "all warnings were given", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(leads) })
	c.stepTo(t, s.Deadline.At.Time)
	c.ended(t, v1alpha1.EndMaxRuntime, 48*time.Hour, held)
	c.running(t, "when another one ended", seen, exempt)
}

// change changes a project, and waits until its quota is counted again.
func (c *timed) change(t *testing.T, name string, how func(*v1alpha1.Project)) {
	t.Helper()
	p := project(name)
	c.await(t, func() error {
		if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		how(p)
		return c.admin.Update(t.Context(), p)
	})
	c.await(t, func() error {
		if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		counted := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied)
		if counted == nil || counted.Status != metav1.ConditionTrue || counted.ObservedGeneration != p.Generation {
			return errNotYet("its quota is counted", counted)
		}
		return nil
	})
}

// brake shows that none of very many workloads is stopped until an administrator
// says so; very many are two here.
func (c *timed) brake(t *testing.T) {
	const ns = "braked"
	c.governed(t, "h2-students", ns, quota("dgx-mig", "500m", "1"))
	file := filepath.Join(c.dir, "components", "lifecycle", "config.yaml")
	c.restart(t, func() {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]any
		if err := yaml.Unmarshal(raw, &config); err != nil {
			t.Fatal(err)
		}
		config["stopping"] = map[string]any{"brake": map[string]any{"percent": 0, "workloads": 1}}
		if raw, err = yaml.Marshal(config); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	both := []workload{aJob(ns, "one", slice), aJob(ns, "two", slice)}
	c.begin(t, both...)
	_, last := c.ends(t, both)
	c.stepTo(t, last.Add(-20*time.Minute))
	for _, w := range both {
		c.awaitClock(t, w, "all warnings were given", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(leads) })
	}
	_, last = c.ends(t, both)
	c.stepTo(t, last)
	state := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: clocks.BrakeName}}
	c.await(t, func() error {
		err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(state), state)
		if err == nil && state.Data[clocks.BrakeDue] != "2" {
			err = errNotYet("two workloads were to be stopped", state.Data)
		}
		return err
	})
	c.running(t, "while the brake is engaged", both...)
	c.step(t, 5*time.Hour)
	c.running(t, "five hours later", both...)

	if said := c.run(t, "brake"); !strings.Contains(said, "the brake is engaged since ") {
		t.Errorf("sluice brake says %s", said)
	}
	c.run(t, "brake", "release", "--for", "2h")
	c.ended(t, v1alpha1.EndMaxRuntime, 53*time.Hour, both...)
}
