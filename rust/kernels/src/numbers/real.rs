//! Real numbers, and vectors of them as the processor has them.

use crate::numbers::Functions;
use bytemuck::Pod;
use pulp::Simd;
use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The rows of tables have a multiple of so many numbers: as many as there are in the longest vector.
pub const MULTIPLE: usize = 16;

/// The alignment of tables: no vector is part of two lines of the cache.
pub(crate) const CACHE_LINE: usize = 64;

/// Real numbers that tables consist of.
pub trait Real:
    Functions
    + Pod
    + Default
    + PartialOrd
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Debug
    + Into<f64>
    + Send
    + Sync
{
    /// As many as a register of the processor holds.
    type Vector<S: Simd>: Pod + Debug;

    /// Some of the numbers of such a register.
    type Mask<S: Simd>: Copy;

    /// 1.
    const ONE: Self;

    /// Up to this |Re δ| the terms of a factor cancel by no more than the tolerance allows.
    const NARROW: f64;

    /// Up to this Σ |Re δ| no product overflows.
    const RANGE: f64;

    /// The errors of tanh θ may grow so much before it is computed anew.
    const GROWTH: f64;

    /// The nearest number.
    #[must_use]
    fn nearest(number: f64) -> Self;

    /// `number` in all places.
    fn splat<S: Simd>(simd: S, number: Self) -> Self::Vector<S>;

    /// `a + b`.
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// `a * b`.
    fn times<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// `a * b + c`, in one instruction where there is one.
    fn times_plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;

    /// `a / b`.
    fn over<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// The greatest one of `a` and `b`, and NaN if one of them is none.
    fn greatest<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// The lesser one of `a` and `b`.
    fn lesser<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// `yes` where `a < b`, and `no` elsewhere: also where one of these is no number.
    fn where_less<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        yes: Self::Vector<S>,
        no: Self::Vector<S>,
    ) -> Self::Vector<S>;

    /// Where `a` and `b` are the same number.
    fn equal<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Mask<S>;

    /// Whether there are any.
    fn any<S: Simd>(simd: S, mask: Self::Mask<S>) -> bool;

    /// `yes` where the mask is, and `no` elsewhere.
    fn choose<S: Simd>(simd: S, mask: Self::Mask<S>, yes: Self::Vector<S>, no: Self::Vector<S>) -> Self::Vector<S>;

    /// |a|.
    fn modulus<S: Simd>(simd: S, a: Self::Vector<S>) -> Self::Vector<S>;

    /// `-a`.
    fn negated<S: Simd>(simd: S, a: Self::Vector<S>) -> Self::Vector<S>;

    /// `a` with the other sign where `signs` has one. It takes no time from multiplications.
    fn signed<S: Simd>(simd: S, a: Self::Vector<S>, signs: Self::Vector<S>) -> Self::Vector<S>;

    /// The product of the numbers of a vector.
    fn product_of_lanes<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;

    /// The least one of them.
    fn least_of_lanes<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;
}

macro_rules! reals {
    ($($t:ident, $vector:ident, $mask:ident, $splat:ident, $add:ident, $mul:ident, $mul_add:ident, $div:ident, $min:ident, $select:ident, $less_than:ident, $equal:ident, $xor:ident, $and:ident, $not:ident, $product:ident, $least:ident, $first:ident: $narrow:literal, $range:literal, $growth:literal;)+) => {$(
        impl Real for $t {
            type Vector<S: Simd> = S::$vector;
            type Mask<S: Simd> = S::$mask;

            const ONE: Self = 1.0;
            const NARROW: f64 = $narrow;
            const RANGE: f64 = $range;
            const GROWTH: f64 = $growth;

            #[allow(clippy::cast_possible_truncation, reason = "the nearest number is wanted")]
            #[inline(always)]
            fn nearest(number: f64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn splat<S: Simd>(simd: S, number: Self) -> S::$vector {
                simd.$splat(number)
            }

            #[inline(always)]
            fn plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }

            #[inline(always)]
            fn times<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }

            #[inline(always)]
            fn times_plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$mul_add(a, b, c)
            }

            #[inline(always)]
            fn over<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$div(a, b)
            }

            #[inline(always)]
            fn greatest<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                let greater = simd.$select(simd.$less_than(a, b), b, a);
                // A NaN isn't less.
                simd.$select(simd.$equal(b, b), greater, b)
            }

            #[inline(always)]
            fn lesser<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$min(a, b)
            }

            #[inline(always)]
            fn where_less<S: Simd>(
                simd: S,
                a: S::$vector,
                b: S::$vector,
                yes: S::$vector,
                no: S::$vector,
            ) -> S::$vector {
                simd.$select(simd.$less_than(a, b), yes, no)
            }

            #[inline(always)]
            fn equal<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$mask {
                simd.$equal(a, b)
            }

            #[inline(always)]
            fn any<S: Simd>(simd: S, mask: S::$mask) -> bool {
                simd.$first(mask) < size_of::<S::$vector>() / size_of::<$t>()
            }

            #[inline(always)]
            fn choose<S: Simd>(simd: S, mask: S::$mask, yes: S::$vector, no: S::$vector) -> S::$vector {
                simd.$select(mask, yes, no)
            }

            #[inline(always)]
            fn modulus<S: Simd>(simd: S, a: S::$vector) -> S::$vector {
                simd.$and(a, simd.$not(simd.$splat(-0.0)))
            }

            #[inline(always)]
            fn negated<S: Simd>(simd: S, a: S::$vector) -> S::$vector {
                // Not the function of this name, which isn't always inlined.
                simd.$xor(a, simd.$splat(-0.0))
            }

            #[inline(always)]
            fn signed<S: Simd>(simd: S, a: S::$vector, signs: S::$vector) -> S::$vector {
                simd.$xor(a, signs)
            }

            #[inline(always)]
            fn product_of_lanes<S: Simd>(simd: S, a: S::$vector) -> Self {
                simd.$product(a)
            }

            #[inline(always)]
            fn least_of_lanes<S: Simd>(simd: S, a: S::$vector) -> Self {
                simd.$least(a)
            }
        }
    )+};
}

reals! {
    f32, f32s, m32s, splat_f32s, add_f32s, mul_f32s, mul_add_e_f32s,
        div_f32s, min_f32s, select_f32s, less_than_f32s, equal_f32s, xor_f32s, and_f32s, not_f32s, reduce_product_f32s, reduce_min_f32s, first_true_m32s: 2.5, 70.0, 4.0;
    f64, f64s, m64s, splat_f64s, add_f64s, mul_f64s, mul_add_e_f64s,
        div_f64s, min_f64s, select_f64s, less_than_f64s, equal_f64s, xor_f64s, and_f64s, not_f64s, reduce_product_f64s, reduce_min_f64s, first_true_m64s: 5.0, 600.0, 100.0;
}
