// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Stagelab runs one stage at a time with kwok's own code. It reads pods and nodes, one JSON
// object per line, and responds to each with kwok's next action. It is built in the module
// of the pins, since no other module may import kwok.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

type answer struct {
	// Stages lists the stages that match; kwok chooses at random among several.
	Stages []string        `json:"stages,omitempty"`
	Delay  time.Duration   `json:"delay,omitempty"`
	Patch  json.RawMessage `json:"patch,omitempty"`
	Object json.RawMessage `json:"object,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func main() {
	stages, err := load(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		a, err := play(stages, lines.Bytes())
		if err != nil {
			a = &answer{Error: err.Error()}
		}
		if err := out.Encode(a); err != nil {
			log.Fatal(err)
		}
	}
}

func load(path string) (map[string][]*internalversion.Stage, error) {
	objects, err := config.Load(context.Background(), path)
	if err != nil {
		return nil, err
	}
	stages := map[string][]*internalversion.Stage{}
	for _, object := range objects {
		if stage, ok := object.(*internalversion.Stage); ok {
			kind := stage.Spec.ResourceRef.Kind
			stages[kind] = append(stages[kind], stage)
		}
	}
	return stages, nil
}

func play(stages map[string][]*internalversion.Stage, raw []byte) (*answer, error) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(raw, &meta); err != nil {
		return nil, err
	}
	var object metav1.Object = &corev1.Pod{}
	if meta.Kind == "Node" {
		object = &corev1.Node{}
	}
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, err
	}
	life, err := lifecycle.NewLifecycle(stages[meta.Kind])
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	event := &lifecycle.Event{Labels: object.GetLabels(), Annotations: object.GetAnnotations(), Data: object}
	choice, err := life.ListAllPossible(ctx, event)
	if err != nil || len(choice) == 0 {
		return &answer{}, err
	}
	a := &answer{}
	for _, stage := range choice {
		a.Stages = append(a.Stages, stage.Name())
	}
	if a.Delay, _, err = choice[0].Delay(ctx, event, time.Now()); err != nil {
		return nil, err
	}
	renderer := gotpl.NewRenderer(gotpl.FuncMap{
		"NodeIPsWith": func(string) []string { return []string{"198.18.0.1"} },
		"PodIPsWith": func(_ string, _ bool, _, _, _ string) []string {
			return []string{"198.19.0.1"}
		},
	})
	_, err = choice[0].DoSteps(0, object.GetFinalizers(), object, renderer,
		func(*internalversion.StageEvent) error { return fmt.Errorf("an event: kwok has no permission for it") },
		func() error { return fmt.Errorf("a deletion: kwok has no permission for it") },
		func(p *lifecycle.Patch) error {
			if p.Subresource != "status" {
				return fmt.Errorf("a patch of %q: kwok has no permission for it", p.Subresource)
			}
			before, err := json.Marshal(object)
			if err != nil {
				return err
			}
			a.Patch = p.Data
			a.Object, err = strategicpatch.StrategicMergePatch(before, p.Data, object)
			return err
		},
		func(*lifecycle.Apply) error { return fmt.Errorf("an apply: kwok has no permission for it") },
	)
	return a, err
}
