//! Which fermions go where.

use smallvec::SmallVec;

/// What happens in one sector. The modes are counted from its first one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Move {
    pub(crate) sector: usize,
    /// The modes that fermions leave.
    pub(crate) emptied: SmallVec<[u32; 4]>,
    /// The modes that they go to.
    pub(crate) filled: SmallVec<[u32; 4]>,
}

/// One fermion, which goes from a mode of a sector to another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop {
    pub(crate) sector: usize,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// What happens in all sectors.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    moves: Vec<Move>,
}

impl Moves {
    /// Makes them those of sites, of which some lose their fermions and the others get one.
    #[inline(always)]
    pub(crate) fn set(&mut self, modes: usize, sites: impl Iterator<Item = (usize, bool)>) {
        self.moves.clear();
        for (site, is_emptied) in sites {
            let (sector, mode) = (site / modes, (site % modes) as u32);
            let place = self.moves.iter().position(|there| there.sector == sector).unwrap_or_else(|| {
                self.moves.push(Move { sector, ..Move::default() });
                self.moves.len() - 1
            });
            let there = &mut self.moves[place];
            if is_emptied { there.emptied.push(mode) } else { there.filled.push(mode) }
        }
    }

    /// Whether each sector keeps its fermions.
    #[inline(always)]
    pub(crate) fn conserve(&self) -> bool {
        self.moves.iter().all(|there| there.emptied.len() == there.filled.len())
    }

    /// The only hop, if nothing else happens.
    #[inline(always)]
    pub(crate) fn hop(&self) -> Option<Hop> {
        let [there] = &*self.moves else { return None };
        let ([from], [to]) = (&*there.emptied, &*there.filled) else { return None };
        Some(Hop { sector: there.sector, from: *from, to: *to })
    }

    /// Sector by sector.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Move> {
        self.moves.iter()
    }

    /// Makes them the way back.
    pub(crate) fn reverse(&mut self) {
        for there in &mut self.moves {
            std::mem::swap(&mut there.emptied, &mut there.filled);
        }
    }
}
