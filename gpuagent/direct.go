// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"context"
	"fmt"
	"io/fs"

	"sluice.dev/gpuagent/config"
	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/occupancy"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/picture"
	"sluice.dev/gpuagent/survey"
)

// Look is what the driver and the kubelet tell where no agent runs. It writes nothing.
// Which instances are Sluice's it cannot tell, and calls none foreign.
func Look(ctx context.Context, cfg *config.Config, library nvml.Library) (picture.Node, error) {
	if err := library.Init(); err != nil {
		return picture.Node{}, fmt.Errorf("%s", notConnected(err).Message)
	}
	defer func() { _ = library.Shutdown() }()
	version, err := library.DriverVersion()
	if err != nil {
		return picture.Node{}, err
	}
	sight, blind := held(ctx, cfg.PodResources)
	book, err := journal.Open(nowhere{}, "here", "now")
	if err != nil {
		return picture.Node{}, err
	}
	engine := partition.Engine{Library: library, Journal: book}
	gpus, err := engine.Observe(ctx, nil, func(_ context.Context, gpu string) (map[string]partition.Holder, error) {
		return sight.Holders(library, gpu)
	})
	if err != nil {
		return picture.Node{}, err
	}
	for i := range gpus {
		for j := range gpus[i].Instances {
			gpus[i].Instances[j].Foreign = false
		}
	}
	surveyor := survey.Surveyor{Library: library, Proc: cfg.Proc}
	node := surveyor.Take(gpus, sight)
	node.Name, node.DriverVersion = cfg.NodeName, version
	if blind != nil {
		node.Troubles = append(node.Troubles, "which pod has what is not known: "+blind.Error())
	}
	return node, nil
}

// held is what the kubelet tells, and why where it does not.
func held(ctx context.Context, socket string) (*occupancy.Sight, error) {
	kubelet, err := occupancy.NewKubelet(socket)
	if err != nil {
		return &occupancy.Sight{}, err
	}
	defer kubelet.Close()
	holdings, err := kubelet.Ask(ctx)
	return occupancy.Known(holdings), err
}

// nowhere is a journal's store that has nothing and keeps nothing.
type nowhere struct{}

var _ journal.Store = nowhere{}

func (nowhere) Load() ([]byte, error)     { return nil, fs.ErrNotExist }
func (nowhere) Replace([]byte) error      { return fs.ErrPermission }
func (nowhere) SetAside() (string, error) { return "", fs.ErrPermission }
