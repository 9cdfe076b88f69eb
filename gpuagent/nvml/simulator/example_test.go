// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"errors"
	"fmt"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// A node with one A100 that is partitioned and in use, and so cannot be partitioned again.
func Example() {
	node, err := simulator.New(simulator.Config{
		Seed: "dgx-1",
		GPUs: []simulator.GPU{{Model: "A100-40GB", UUID: "GPU-0", Mode: nvml.Enabled}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var library nvml.Library = node
	if err := library.Init(); err != nil {
		fmt.Println(err)
		return
	}
	instance, _ := library.CreateInstance("GPU-0", 9, nvml.Placement{Start: 4, Size: 4})
	compute, _ := library.CreateComputeInstance("GPU-0", instance.ID)
	left, _ := library.RemainingCapacity("GPU-0", 5)
	fmt.Println("4g.20gb that still fit:", left)

	_ = node.Attach(4711, compute.UUID, 12000, 80) // a training starts
	err = library.DestroyComputeInstance("GPU-0", instance.ID, compute.ID)
	fmt.Println("in use:", errors.Is(err, nvml.ErrInUse))

	node.Boot() // a boot removes the layout
	_ = library.Init()
	instances, _ := library.Instances("GPU-0")
	fmt.Println("instances after the boot:", len(instances))
	// Output:
	// 4g.20gb that still fit: 1
	// in use: true
	// instances after the boot: 0
}
