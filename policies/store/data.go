// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/data"
	"sluice.dev/policies/engine"
)

// DataCacheOptions limit a cache to the ConfigMaps that policies read. Every manager with a Store needs them: without
// them it would watch the ConfigMaps of all namespaces.
func DataCacheOptions() (client.Object, cache.ByObject) {
	return &corev1.ConfigMap{}, cache.ByObject{
		Namespaces: map[string]cache.Config{v1alpha1.SystemNamespace: {}},
		Label:      labels.SelectorFromSet(map[string]string{v1alpha1.PolicyDataLabel: "true"}),
		Transform:  cache.TransformStripManagedFields(),
	}
}

// dataObjects are the kinds of objects from which the store makes the data of policies.
func dataObjects() []client.Object {
	return []client.Object{&corev1.ConfigMap{}, &v1alpha1.AdmissionParameters{}}
}

// signal is a channel for one pending change, since an update covers all changes before it.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// watchData starts the watches of data, and returns the signal of changes and a function that stops them. The data is
// loaded afterwards, but for the objects.
func (s *Store) watchData(ctx context.Context) (signal, func(), error) {
	changed := newSignal()
	stop := func() {}
	notify := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed.send() },
		UpdateFunc: func(before, after any) {
			old, isOld := before.(*v1alpha1.AdmissionParameters)
			parameters, isNew := after.(*v1alpha1.AdmissionParameters)
			if !isOld || !isNew || old.Generation != parameters.Generation {
				changed.send()
			}
		},
		DeleteFunc: func(any) { changed.send() },
	}
	for _, object := range dataObjects() {
		informer, err := s.cache.GetInformer(ctx, object)
		if err != nil {
			return nil, stop, fmt.Errorf("watch data for policies: %w", err)
		}
		registration, err := informer.AddEventHandler(notify)
		if err != nil {
			return nil, stop, fmt.Errorf("watch data for policies: %w", err)
		}
		before := stop
		stop = func() { before(); _ = informer.RemoveEventHandler(registration) } // it fails only if the handler is removed already
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return changed, stop, nil
		}
	}
	if s.Objects != nil {
		s.Objects.Notify = changed.send
		ended := make(chan struct{})
		go func() { defer close(ended); s.Objects.Start(ctx) }()
		before := stop
		stop = func() { before(); <-ended }
	}
	return changed, stop, s.updateData(ctx)
}

// updateData gives the engine the present data, and calls the listeners if policies miss other data than before.
func (s *Store) updateData(ctx context.Context) error {
	var configMaps corev1.ConfigMapList
	err := s.cache.List(ctx, &configMaps, client.UnsafeDisableDeepCopy)
	var parameters v1alpha1.AdmissionParameters
	if err == nil {
		err = client.IgnoreNotFound(s.cache.Get(ctx, types.NamespacedName{Name: v1alpha1.AdmissionParametersName}, &parameters))
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // the program ends
		}
		return fmt.Errorf("read data for policies: %w", err)
	}
	configs, faults := s.configs.Update(configMaps.Items)
	s.Engine.UpdateData(engine.NewData(configs, s.objectKinds(ctx, parameters.Spec.PolicyData)))
	s.setFaults(faults)
	s.listenerMu.Lock()
	defer s.listenerMu.Unlock()
	s.mu.Lock()
	reports := s.withMissing(s.reports)
	changed := !slices.EqualFunc(reports, s.reports, func(a, b engine.Report) bool { return slices.Equal(a.Missing, b.Missing) })
	if changed {
		s.reports = reports
		s.logReports()
	}
	listeners := slices.Clone(s.listeners)
	s.mu.Unlock()
	if !changed {
		return nil
	}
	for _, listener := range listeners {
		listener(reports)
	}
	return nil
}

// objectKinds returns the objects of the kinds that the AdmissionParameters list. Without a watcher they have no objects:
// the store then only knows whether a kind is listed.
func (s *Store) objectKinds(ctx context.Context, listed []v1alpha1.PolicyDataKind) []engine.ObjectKind {
	if s.Objects == nil {
		return data.Collect(listed, nil)
	}
	s.Objects.SetKinds(ctx, listed)
	kinds := s.Objects.Kinds()
	if s.Objects.Loaded() {
		s.objectsLoaded.Store(true)
	}
	s.measureKinds(kinds)
	return kinds
}

// measureKinds sets the metric of each kind, and removes those of kinds that are no longer listed.
func (s *Store) measureKinds(kinds []engine.ObjectKind) {
	measured := make(map[string]bool, len(kinds))
	for _, kind := range kinds {
		unavailable := 0.0
		if kind.Unavailable != "" {
			unavailable = 1
		}
		kindUnavailable.WithLabelValues(kind.Kind).Set(unavailable)
		measured[kind.Kind] = true
	}
	for kind := range s.measuredKinds {
		if !measured[kind] {
			kindUnavailable.DeleteLabelValues(kind)
		}
	}
	s.measuredKinds = measured
}

// errObjectsNotLoaded is the error while the objects of policies are listed for the first time.
var errObjectsNotLoaded = errors.New("the objects that policies read are not loaded yet")

// withMissing returns the reports with the data that the policies in force miss.
func (s *Store) withMissing(reports []engine.Report) []engine.Report {
	set, err := s.Engine.Current()
	if err != nil {
		return reports
	}
	missing := set.MissingData()
	with := slices.Clone(reports)
	for i := range with {
		with[i].Missing = missing[with[i].Name]
	}
	return with
}

// OnDataFaults registers a listener for the ConfigMaps whose present version policies do not read. It is called with all of
// them after each change, and at once with the last ones, if any. Calls never overlap. The listener must be fast.
func (s *Store) OnDataFaults(listener func([]data.Fault)) {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	s.faultListeners = append(s.faultListeners, listener)
	if len(s.faults) > 0 {
		listener(s.faults)
	}
}

// setFaults logs the faults of ConfigMaps once, sets the metric, and calls the listeners after a change.
func (s *Store) setFaults(faults []data.Fault) {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	if slices.Equal(faults, s.faults) {
		return
	}
	before := make(map[string]string, len(s.faults))
	for _, fault := range s.faults {
		before[fault.Name] = fault.Message
	}
	configMapInvalid.Reset()
	for _, fault := range faults {
		configMapInvalid.WithLabelValues(fault.Name).Set(1)
		if before[fault.Name] != fault.Message {
			s.Logger.Info("ConfigMap for policies has a fault", "configMap", fault.Name, "fault", fault.Message)
		}
		delete(before, fault.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		s.Logger.Info("ConfigMap for policies has no more faults", "configMap", name)
	}
	s.faults = faults
	for _, listener := range s.faultListeners {
		listener(faults)
	}
}

var (
	configMapInvalid = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_policy_configmap_invalid",
		Help: "1 while policies do not read the present version of a ConfigMap, because it does not parse or exceeds a limit.",
	}, []string{"configmap"})
	kindUnavailable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_policy_objects_unavailable",
		Help: "1 while policies cannot read the objects of a kind, because it is too large, not loaded, or the right to list it is missing.",
	}, []string{"kind"})
)

func init() { metrics.Registry.MustRegister(configMapInvalid, kindUnavailable) }
