//! A gated unit, `z = x sigmoid(x) y`, as one program of elements: as JSON and by the builder, and its gradients by steps. It runs on the CPU and,
//! where there is an adapter that serves it, through wgpu.
//!
//! `cargo run --release --example pointwise`

use baracuda_ops::{
    AnyDescriptor, Buffer, DType, Descriptor, Device, Function, Operand, PlanOptions, PointwiseDescriptor, Program,
    Result, Role, TensorDesc, Workspace,
};

const GATED: &str =
    r#"{"inputs":["x","y"],"let":[["s","sigmoid","x"],["t","mul","x","s"],["z","mul","t","y"]],"outputs":["z"]}"#;

/// Runs an op on buffers in the order of its slots.
fn run(device: &Device, op: &AnyDescriptor, buffers: &[Buffer]) -> Result<()> {
    let plan = op.plan(device, &PlanOptions::default())?;
    let scratch = device.alloc(plan.workspace().bytes)?;
    let mut operands: Vec<Operand<'_>> = buffers.iter().map(Operand::from).collect();
    plan.run(&mut device.queue(), &mut operands, Workspace::new(&scratch))
}

fn show(device: &Device, gated: &PointwiseDescriptor) -> Result<()> {
    let [x, y] = [[-2f32, -0.5, 0.5, 2.0], [1.0, 2.0, 3.0, 4.0]].map(|values| device.upload(&values));
    let (x, y, z) = (x?, y?, device.alloc(16)?);
    run(device, &AnyDescriptor::new(gated.clone()), &[x.clone(), y.clone(), z.clone()])?;
    println!("{device}\n  z  {:?}", device.queue().download::<f32>(&z)?);

    // The gradient that arrives at z is 1 everywhere: that of the sum of its elements.
    let dz = device.upload(&[1f32; 4])?;
    for step in gated.gradients(&["out0"], &["in0", "in1"])? {
        let buffer = |role: &Role| match role {
            Role::Forward("in0") => Ok(x.clone()),
            Role::Forward("in1") => Ok(y.clone()),
            Role::GradientOf(_) => Ok(dz.clone()),
            _ => device.alloc(16),
        };
        let buffers = step.roles.iter().map(buffer).collect::<Result<Vec<_>>>()?;
        run(device, &step.descriptor, &buffers)?;
        for (role, buffer) in step.roles.iter().zip(&buffers) {
            if let Role::GradientFor(inputs) = role {
                println!("  gradient of {}  {:?}", inputs.join(", "), device.queue().download::<f32>(buffer)?);
            }
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut b = Program::builder();
    let [x, y] = ["x", "y"].map(|name| b.input(name));
    let sigmoid = b.call(Function::Sigmoid, [x]);
    let silu = b.call(Function::Mul, [x, sigmoid]);
    let z = b.call(Function::Mul, [silu, y]);
    let program = b.finish([z])?;
    assert_eq!(serde_json::from_str::<Program>(GATED).expect("a program"), program);

    let operand = TensorDesc::contiguous(DType::F32, &[4])?;
    let gated = PointwiseDescriptor::new(program, vec![operand; 2])?;
    show(&Device::cpu(), &gated)?;
    #[cfg(feature = "wgpu")]
    if let Ok(device) = Device::wgpu_default() {
        let any = AnyDescriptor::new(gated.clone());
        match any.supported_by(&device, &PlanOptions::default()) {
            Ok(_) => show(&device, &gated)?,
            Err(why) => println!("{device}: {why}"),
        }
    }
    Ok(())
}
