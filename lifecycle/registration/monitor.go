// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

var differences = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "sluice_webhook_configuration_differences",
	Help: "Severe differences between Sluice's webhook configurations and what is shipped, with the added kinds; -1 while they cannot " +
		"be read, 0 on a standby replica.",
})

func init() { metrics.Registry.MustRegister(differences) }

// interval is the interval of comparisons, in machine time.
const interval = time.Minute

// Monitor compares the webhook configurations once a minute, for a metric. It logs each difference once while it lasts.
type Monitor struct {
	// Live reads from the API server.
	Live client.Reader
	// Files are those of package manifests.
	Files fs.FS

	reported []Difference
}

// Start compares until ctx ends. It implements manager.Runnable, which the leader runs.
func (m *Monitor) Start(ctx context.Context) error {
	shipped, err := Shipped(m.Files)
	if err != nil {
		return err
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) { m.observe(ctx, shipped) }, interval)
	differences.Set(0)
	return nil
}

func (m *Monitor) observe(ctx context.Context, shipped Configurations) {
	found, err := m.compare(ctx, shipped)
	if err != nil {
		if ctx.Err() == nil {
			differences.Set(-1)
			log.FromContext(ctx).Error(err, "Failed to compare webhook configurations")
		}
		return
	}
	differences.Set(float64(len(found)))
	for _, difference := range found {
		if !slices.Contains(m.reported, difference) {
			log.FromContext(ctx).Info("Webhook configuration differs from what is shipped", "configuration", difference.Object,
				"webhook", difference.Webhook, "difference", difference.Message)
		}
	}
	m.reported = found
}

// compare returns the severe differences.
func (m *Monitor) compare(ctx context.Context, shipped Configurations) ([]Difference, error) {
	live := Configurations{&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}}
	var parameters v1alpha1.AdmissionParameters
	for _, object := range []client.Object{live.Validating, live.Mutating, &parameters} { // an object that does not exist is empty
		if err := m.Live.Get(ctx, client.ObjectKey{Name: Name}, object); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read %T %s: %w", object, Name, err)
		}
	}
	found := Compare(live, shipped, workloadkind.AddedRules(parameters.Spec.PodTemplates))
	return slices.DeleteFunc(found, func(d Difference) bool { return !d.Severe }), nil
}
