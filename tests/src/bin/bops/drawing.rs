//! The drawing of a run beside other libraries.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// How many times as fast as another an op is, cell by cell.
pub(crate) struct Row {
    pub(crate) op: String,
    /// `fw` or `bw`.
    pub(crate) pass: String,
    pub(crate) ratios: Vec<f64>,
}

const FORWARD: RGBColor = RGBColor(38, 103, 166);
const BACKWARD: RGBColor = RGBColor(196, 103, 38);
const WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 24;
const AROUND: u32 = 96;

/// An SVG: a bar for each row up to the geometric mean of its ratios, a dot for each of them, a line where neither is faster.
pub(crate) fn draw(title: &str, rows: &[Row]) -> Result<String> {
    let height = ROW_HEIGHT * rows.len() as u32 + AROUND;
    let mut text = String::new();
    // The library's errors borrow what it draws on.
    drawn(SVGBackend::with_string(&mut text, (WIDTH, height)), title, rows).map_err(|error| anyhow!("{error}"))?;
    Ok(text)
}

fn drawn<B: DrawingBackend>(on: B, title: &str, rows: &[Row]) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let area = on.into_drawing_area();
    area.fill(&WHITE)?;
    let all = || rows.iter().flat_map(|row| &row.ratios).copied();
    let (least, most) = (all().fold(1.0, f64::min), all().fold(1.0, f64::max));
    let count = rows.len() as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 17))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(265)
        .build_cartesian_2d((0.95 * least..1.1 * most).log_scale().base(2.0), count..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .y_labels(0)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|x| format!("{x}x"))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (i, row) in rows.iter().enumerate() {
        let middle = i as f64 + 0.5;
        let color = if row.pass == "fw" { FORWARD } else { BACKWARD };
        let mean = (row.ratios.iter().map(|r| r.ln()).sum::<f64>() / row.ratios.len() as f64).exp();
        let bar = [(1.0, middle - 0.32), (mean, middle + 0.32)];
        chart.draw_series([Rectangle::new(bar, color.mix(0.3).filled())])?;
        chart.draw_series(row.ratios.iter().map(|&ratio| Circle::new((ratio, middle), 2, color.mix(0.7).filled())))?;
        let pass = if row.pass == "fw" { "forward" } else { "backward" };
        let (_, y) = chart.backend_coord(&(1.0, middle));
        area.draw(&Text::new(format!("{} {pass}", row.op), (16, y - 6), ("sans-serif", 13).into_font()))?;
        area.draw(&Text::new(format!("{mean:.2}"), (240, y - 6), ("sans-serif", 13).into_font().color(&color)))?;
    }
    chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, count)], BLACK)])?;
    area.present()
}
